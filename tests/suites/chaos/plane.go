package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/daemons/client"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/plane"
)

// planeFault is a fault of the processes of a control plane. run begins and ends it.
type planeFault struct {
	text string
	run  func(ctx context.Context, p *plane.Plane) error
}

// planeFaults returns n random faults. The same seed gives the same list.
func planeFaults(seed uint64, n int) []planeFault {
	r := rand.New(rand.NewPCG(seed, 1))
	seconds := func(least, most int) time.Duration { return time.Duration(least+r.IntN(most-least+1)) * time.Second }
	makers := []func() planeFault{
		func() planeFault {
			d := seconds(0, 3)
			return planeFault{
				fmt.Sprintf("the leading member killed, back after %s", d),
				func(ctx context.Context, p *plane.Plane) error {
					i, err := awaitLeader(ctx, p)
					if err != nil {
						return err
					}
					return killFor(ctx, d, p.Etcd[i])
				},
			}
		},
		func() planeFault {
			i, d := r.IntN(3), seconds(2, 15)
			return planeFault{
				fmt.Sprintf("member %d paused for %s", i, d),
				func(ctx context.Context, p *plane.Plane) error { return pauseFor(ctx, d, p.Etcd[i]) },
			}
		},
		func() planeFault {
			i, d := r.IntN(3), seconds(3, 15)
			return planeFault{
				fmt.Sprintf("all members but %d paused for %s", i, d),
				func(ctx context.Context, p *plane.Plane) error {
					return pauseFor(ctx, d, p.Etcd[(i+1)%3], p.Etcd[(i+2)%3])
				},
			}
		},
		func() planeFault {
			i, d := r.IntN(3), seconds(3, 10)
			return planeFault{
				fmt.Sprintf("all members but %d killed, back after %s", i, d),
				func(ctx context.Context, p *plane.Plane) error {
					return killFor(ctx, d, p.Etcd[(i+1)%3], p.Etcd[(i+2)%3])
				},
			}
		},
		func() planeFault {
			behind := int64(r.IntN(100))
			return planeFault{
				fmt.Sprintf("compacted to %d revisions ago", behind),
				func(ctx context.Context, p *plane.Plane) error { return compactStore(ctx, p, behind) },
			}
		},
		func() planeFault {
			i := r.IntN(3)
			return planeFault{
				fmt.Sprintf("API server %d killed", i),
				func(ctx context.Context, p *plane.Plane) error { return killFor(ctx, 0, p.API[i]) },
			}
		},
		func() planeFault {
			i, d := r.IntN(3), seconds(2, 10)
			return planeFault{
				fmt.Sprintf("API server %d paused for %s", i, d),
				func(ctx context.Context, p *plane.Plane) error { return pauseFor(ctx, d, p.API[i]) },
			}
		},
	}
	var list []planeFault
	for range n {
		list = append(list, makers[r.IntN(len(makers))]())
	}
	return list
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func killFor(ctx context.Context, d time.Duration, list ...*plane.Process) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, p.Kill())
	}
	sleep(ctx, d)
	for _, p := range list {
		errs = append(errs, p.Start(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

func pauseFor(ctx context.Context, d time.Duration, list ...*plane.Process) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, p.Pause())
	}
	sleep(ctx, d)
	for _, p := range list {
		errs = append(errs, p.Resume())
	}
	return errors.Join(errs...)
}

// awaitLeader waits for a leader of etcd, and returns its member number.
func awaitLeader(ctx context.Context, p *plane.Plane) (member int, err error) {
	err = cluster.Eventually(ctx, 20*time.Second, func(ctx context.Context) error {
		var errs []error
		for i := range p.Etcd {
			leads, err := p.Metric(ctx, i, "etcd_server_is_leader ")
			if err == nil && leads == 1 {
				member = i
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(append(errs, errors.New("no member says that it leads"))...)
	})
	return member, err
}

func compactStore(ctx context.Context, p *plane.Plane, behind int64) error {
	c, err := p.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	now, err := c.Get(ctx, "\x00")
	if err != nil {
		return fmt.Errorf("learn the store's revision: %w", err)
	}
	if _, err := c.Compact(ctx, max(1, now.Header.Revision-behind)); err != nil &&
		!strings.Contains(err.Error(), "compacted") {
		return fmt.Errorf("compact: %w", err)
	}
	return nil
}

// breakPlane runs faults on three members of etcd and three API servers on this machine.
func breakPlane(ctx context.Context, o options) (err error) {
	bundle, err := cluster.Bundle()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "chaos-api-")
	if err != nil {
		return err
	}
	faults := planeFaults(o.seed, int(o.duration/(3*time.Second))+1)
	fmt.Printf("chaos: seed %d, %s: %s, and on\n", o.seed, o.duration, faults[0].text)
	p, err := plane.New(context.WithoutCancel(ctx), plane.Options{Bin: bundle, Dir: dir, Members: 3, Servers: 3})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for i := range p.API {
		if err := p.API[i].Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	if err := allReady(ctx, p); err != nil {
		return err
	}
	open := func(servers ...int) (kubernetes.Interface, error) {
		var list []string
		for _, i := range servers {
			list = append(list, p.Addresses()[i])
		}
		config, err := client.Config(client.Options{Kubeconfig: p.Kubeconfig(), APIServers: list, UserAgent: "chaos"})
		if err != nil {
			return nil, err
		}
		return kubernetes.NewForConfig(config)
	}
	all, err := open(0, 1, 2)
	if err != nil {
		return err
	}
	if _, err := all.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	clients, err := startClients(ctx, open)
	if err != nil {
		return err
	}
	defer clients.stop()
	var findings []string
	done, start := 0, time.Now()
	for _, f := range faults {
		if ctx.Err() != nil || time.Since(start) > o.duration {
			break
		}
		fmt.Printf("%s %s\n", stamp(), f.text)
		if err := f.run(ctx, p); err != nil {
			findings = append(findings, fmt.Sprintf("%s: %v", f.text, err))
		}
		done++
		over := time.Now()
		if err := allReady(ctx, p); err != nil && ctx.Err() == nil {
			findings = append(findings, fmt.Sprintf("after this: %s: %v", f.text, err))
		}
		fmt.Printf("%s   over; ready again after %.1f s\n", stamp(), time.Since(over).Seconds())
		sleep(ctx, time.Second) // without a fault, so that watches can resume
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	relists, found := clients.finish(final, all)
	err = reportVerdict(o.seed, done, clients.history, relists, append(findings, found...))
	if err != nil {
		printLogs(dir)
	}
	return err
}

// printLogs prints the end of the processes' logs, because the files are deleted.
func printLogs(dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		fmt.Fprintf(os.Stderr, "--- %s\n%s\n", filepath.Base(log), text[max(0, len(text)-4000):])
	}
}

func allReady(ctx context.Context, p *plane.Plane) error {
	for i := range p.API {
		if err := p.Ready(ctx, i); err != nil {
			return err
		}
	}
	return nil
}
