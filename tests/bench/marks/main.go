// Command marks measures the speed marks on a lab of real machines, and writes the results with machine, date and
// method to docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clusterctl/tests/bench/report"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
	"clusterctl/tests/tools/document"
)

func main() {
	onlyMemory := flag.Bool("memory", false,
		"print the memory of idle daemons, kube-ingress included, and measure nothing else")
	onlyIdle := flag.Bool("idle", false, "print what 100 idle pods with probes cost their node, and measure "+
		"nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := measureRuns
	switch {
	case *onlyMemory:
		run = printMemory
	case *onlyIdle:
		run = idleCost
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measurements is the measurements of one run.
type measurements struct {
	cold, noop time.Duration
	daemons    []cluster.Memory
	pods       []time.Duration
}

func measureRuns(ctx context.Context) (err error) {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	c, err := startCluster(ctx, root, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Lab.Down(context.WithoutCancel(ctx))) }()
	var r measurements
	fmt.Println("cold apply …")
	started := time.Now()
	if err := c.Apply(ctx, io.Discard); err != nil {
		return err
	}
	if err := awaitServing(ctx, c); err != nil {
		return err
	}
	r.cold = time.Since(started)
	fmt.Println("no-op apply …")
	started = time.Now()
	out, err := cluster.Output(c.Clusterctl(ctx, "apply", "--auto-approve"))
	if err != nil {
		return err
	}
	r.noop = time.Since(started)
	if !strings.Contains(out, "No changes") {
		return fmt.Errorf("the second apply changed something:\n%s", out)
	}
	fmt.Println("pod start …")
	if r.pods, err = podStarts(ctx, c, 30); err != nil {
		return err
	}
	if r.daemons, err = measureIdle(ctx, c); err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "benchmarks.md")
	if err := document.Write(path, formatReport(r)); err != nil {
		return err
	}
	fmt.Print(formatReport(r), "\nwritten to ", path, "\n")
	return nil
}

// printMemory starts the cluster with an ingress proxy, and prints the memory of its daemons.
func printMemory(ctx context.Context) (err error) {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	c, err := startCluster(ctx, root, "ingress {}")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Lab.Down(context.WithoutCancel(ctx))) }()
	if err := c.Apply(ctx, io.Discard); err != nil {
		return err
	}
	if err := awaitServing(ctx, c); err != nil {
		return err
	}
	daemons, err := measureIdle(ctx, c)
	for _, d := range daemons {
		fmt.Printf("%-8s %-24s %6d KiB resident, of it %6d anonymous\n", d.Machine, d.Unit, d.Resident, d.Anonymous)
	}
	return err
}

// measureIdle returns the memory of the daemons after they were idle for a minute.
func measureIdle(ctx context.Context, c *cluster.Cluster) (list []cluster.Memory, err error) {
	fmt.Println("memory after 60 idle seconds …")
	if err := pause(ctx, time.Minute); err != nil { // let the daemons become idle
		return nil, err
	}
	for _, m := range c.Lab.Machines[:2] { // the two nodes are alike
		of, err := cluster.Memories(ctx, m)
		if err != nil {
			return nil, err
		}
		list = append(list, of...)
	}
	return list, nil
}

// startCluster starts the machines and writes the configuration of examples/small, with settings added to its cluster
// block.
func startCluster(ctx context.Context, root, settings string) (*cluster.Cluster, error) {
	files := map[string]string{}
	for name, source := range map[string]string{"cluster.hcl": "examples/small/cluster.hcl",
		"web.hcl": "tests/suites/demo/web.hcl"} {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	files["cluster.hcl"] = strings.Replace(files["cluster.hcl"], "cluster \"small\" {\n",
		"cluster \"small\" {\n  "+settings+"\n", 1)
	c, err := cluster.New(ctx, cluster.Options{Name: fmt.Sprintf("bench-%d", os.Getpid()), Files: files, Log: os.Stderr,
		Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"}})
	if err != nil {
		return nil, err
	}
	return c, webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar"))
}

// awaitServing waits until the workload answers through its Service on a node.
func awaitServing(ctx context.Context, c *cluster.Cluster) error {
	address, err := cluster.Output(c.KubectlCommand(ctx, "get", "service", "web", "-n", "shop", "-o",
		"jsonpath={.spec.clusterIP}"))
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		_, err := c.Lab.Machine("a").Run(ctx, "curl -sf -m 1 http://"+address+"/")
		return err
	})
}

func formatReport(r measurements) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\nWritten by `make bench` %s.\n", report.Environment())
	b.WriteString(`
The machines are the lab's (examples/small: one control-plane machine and two nodes on one host), so all
daemons of all machines share these cores. Clock times vary with what else the host does; read them as orders of magnitude.

| what | mark | measured |
|---|---|---|
`)
	fmt.Fprintf(&b, "| cold `apply` of 1 + 2 bare machines until the Deployment serves through its Service | under 15 "+
		"s | %.1f s |\n", r.cold.Seconds())
	fmt.Fprintf(&b, "| `apply` when nothing has changed | under 2 s | %.2f s |\n", r.noop.Seconds())
	slices.Sort(r.pods)
	fmt.Fprintf(&b, "| pod start on a warm node, create to Ready, with its token volume: p50, p90, max of %d | under "+
		"0.25 s (upstream here: 0.51, 0.53, 0.60 s) | %.3f, %.3f, %.3f s |\n", len(r.pods),
		r.pods[len(r.pods)/2].Seconds(), r.pods[len(r.pods)*9/10].Seconds(), r.pods[len(r.pods)-1].Seconds())
	b.WriteString("\n## Memory of each daemon, idle for a minute, MiB\n\n| machine | daemon | resident | of it " +
		"anonymous | upstream here |\n|---|---|---|---|---|\n")
	upstream := map[string]string{
		"kube-apiserver":          "270",
		"etcd":                    "50",
		"kube-controller-manager": "107",
		"kube-scheduler":          "67",
		"kubelet":                 "83, 23 anonymous",
		"kube-proxy":              "57, 11 anonymous",
		"containerd":              "46",
	}
	for _, d := range r.daemons {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s |\n", d.Machine, d.Unit, d.Resident>>10, d.Anonymous>>10,
			upstream[d.Unit])
	}
	b.WriteString(`
## Method

- Cold apply: the machines are booted and have only Debian, systemd and sshd. The clock runs from the start of
  ` + "`clusterctl apply`" + ` until curl on a node gets an answer through the Service's address.
- No-op apply: the same command once more; it must say that there are no changes.
- Pod start: pods with one container and the service-account token volume, image present, one after another, on nodes
  that run other pods already; from sending the create to seeing the Ready condition in a watch, by client-go.
- Memory: VmRSS and RssAnon of each unit's main process from /proc after 60 s without requests.
`)
	return b.String()
}
