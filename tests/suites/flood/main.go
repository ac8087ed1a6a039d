// Command flood sends floods of requests to every listener of a cluster as unauthenticated clients. The requests are
// cheap to send and costly to handle. Meanwhile it measures the daemons' memory, and sends requests as an administrator
// and as a client of the ingress:
//
//	go run ./tests/suites/flood -minutes 10    # starts a lab, floods it, deletes it
//
// It exits with status 1 if a daemon used more memory than docs/operations.md states or was restarted. It also does so
// if the administrator or the client of the ingress received no answer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
)

func main() {
	minutes := flag.Float64("minutes", 10, "how long to flood")
	attack := flag.Bool("attack", false, "flood from this process's network, rather than bring a lab up")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	length := time.Duration(*minutes * float64(time.Minute))
	do := runFlood
	if *attack {
		do = runFloods
	}
	if err := do(ctx, length); err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

// runFlood starts a cluster and floods it.
func runFlood(ctx context.Context, length time.Duration) (err error) {
	c, err := startCluster(ctx, fmt.Sprintf("flood-%d", os.Getpid()))
	if c != nil {
		defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}
	most, err := documentedLimits()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	attack := c.Lab.Command(ctx, self, "-attack", "-minutes", fmt.Sprint(length.Minutes()))
	attack.Stdout, attack.Stderr = os.Stdout, os.Stderr
	if err := attack.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- attack.Wait() }()
	w := memoryWatcher{c: c, peaks: map[string]int{}, processes: map[string]string{}}
	for tick := time.NewTicker(5 * time.Second); ; {
		select {
		case err := <-done:
			tick.Stop()
			return errors.Join(err, w.check(ctx), w.verdict(most))
		case <-tick.C:
			if err := w.check(ctx); err != nil {
				return err
			}
		}
	}
}

// ingressObjects puts the workload of tests/suites/demo behind the ingress.
const ingressObjects = `
object "networking.k8s.io/v1" "Ingress" "web" {
  namespace = "shop"
  spec = {
    rules = [{ http = { paths = [{ path = "/", pathType = "Prefix", backend = { service = { name = "web", port = { number = 80 } } } }] } }]
  }
}
`

// startCluster starts the cluster of examples/small, with an ingress and a workload behind it.
func startCluster(ctx context.Context, name string) (*cluster.Cluster, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	small, err := os.ReadFile(filepath.Join(root, "examples/small/cluster.hcl"))
	if err != nil {
		return nil, err
	}
	const networks = `service_cidrs = ["10.96.0.0/16"]` + "\n"
	declared := strings.Replace(string(small), networks, networks+"  ingress {}\n", 1)
	if declared == string(small) {
		return nil, fmt.Errorf("examples/small has no %q", networks)
	}
	web, err := os.ReadFile(filepath.Join(root, "tests/suites/demo/web.hcl"))
	if err != nil {
		return nil, err
	}
	c, err := cluster.New(
		ctx,
		cluster.Options{
			Name:     name,
			Log:      os.Stderr,
			Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"},
			Files:    map[string]string{"cluster.hcl": declared, "web.hcl": string(web) + ingressObjects},
		},
	)
	if err != nil {
		return nil, err
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		return c, err
	}
	return c, c.Apply(ctx, os.Stderr)
}

// documentedLimits returns the maximum memory of each daemon under floods, in MiB, from docs/operations.md.
func documentedLimits() (map[string]int, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		return nil, err
	}
	_, section, _ := strings.Cut(string(text), "## What strangers can cost")
	section, _, _ = strings.Cut(section, "\n## ")
	most := map[string]int{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		if mib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(cells[2]), " MiB")); err == nil {
			most[strings.TrimSpace(cells[1])] = mib
		}
	}
	if len(most) == 0 {
		return nil, errors.New("docs/operations.md says nothing of memory under floods")
	}
	return most, nil
}

// memoryWatcher records the memory of the daemons, and whether the administrator receives answers.
type memoryWatcher struct {
	c         *cluster.Cluster
	peaks     map[string]int    // maximum in MiB by daemon
	processes map[string]string // process id by machine and daemon
	findings  []error
	requests  int
	slowest   time.Duration
}

const memoryCommand = `for u in kube-apiserver kube-controller-manager kube-scheduler etcd kubelet kube-proxy kube-network kube-dns kube-ingress metrics-server containerd; do
  pid=$(systemctl show -p MainPID --value $u.service); [ "${pid:-0}" = 0 ] || echo $u $pid $(awk '/^VmRSS/{print $2}' /proc/$pid/status); done`

// fetchCommand sends a request to the flooded ingress from another client address.
const fetchCommand = `timeout 20 bash -c 'exec 3<>/dev/tcp/` + nodeAddress + `/80; printf "GET / HTTP/1.0\r\nHost: shop\r\n\r\n" >&3; head -1 <&3' | grep -q " 200 "`

func (w *memoryWatcher) check(ctx context.Context) error {
	for _, name := range []string{"control", "a", "b"} {
		out, err := cluster.Output(w.c.Lab.Machine(name).SSH(ctx, "root", memoryCommand))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			if len(fields) != 3 {
				continue
			}
			daemon, process := fields[0], fields[1]
			kib, err := strconv.Atoi(fields[2])
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			w.peaks[daemon] = max(w.peaks[daemon], kib>>10)
			key := name + "/" + daemon
			if was := w.processes[key]; was != "" && was != process {
				w.findings = append(w.findings, fmt.Errorf("%s was restarted", key))
			}
			w.processes[key] = process
		}
	}
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	w.requests++
	if _, err := cluster.Output(w.c.KubectlCommand(asking, "get", "nodes", "--request-timeout=20s")); err != nil &&
		ctx.Err() == nil {
		w.findings = append(w.findings, fmt.Errorf("the administrator was not answered: %w", err))
	}
	w.slowest = max(w.slowest, time.Since(began))
	if _, err := cluster.Output(w.c.Lab.Machine("b").SSH(asking, "root", fetchCommand)); err != nil &&
		ctx.Err() == nil {
		w.findings = append(w.findings, fmt.Errorf("a client of the ingress was not answered: %w", err))
	}
	return nil
}

func (w *memoryWatcher) verdict(most map[string]int) error {
	fmt.Printf("the administrator asked %d times, and waited %.1f s at most\n", w.requests, w.slowest.Seconds())
	for _, daemon := range slices.Sorted(maps.Keys(w.peaks)) {
		limit, ok := most[daemon]
		fmt.Printf("%-24s %4d MiB at most, %d allowed\n", daemon, w.peaks[daemon], limit)
		switch {
		case !ok:
			w.findings = append(w.findings, fmt.Errorf("docs/operations.md does not say how much %s may take", daemon))
		case w.peaks[daemon] > limit:
			w.findings = append(w.findings, fmt.Errorf("%s took %d MiB, more than %d", daemon, w.peaks[daemon], limit))
		}
	}
	return errors.Join(w.findings...)
}
