// Command scheduler measures scheduler and controllers against their marks, as processes of a whole control plane with
// an etcd that writes to the disk, and writes docs/benchmarks-scheduler.md. It needs no upstream binary: upstream was
// measured once on a machine of this kind, and its figures are in the code.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"clusterctl/tests/bench/report"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/tools/document"
)

func main() {
	runs := flag.Int("runs", 3, "of each measurement, of which the median counts")
	only := flag.String("only", "", "measure only these parts, and write no document: "+strings.Join(partNames(), ","))
	profiles := flag.String("profiles", "", "have the daemons profiled, and write that into this `folder`")
	scale := flag.Int("scale", 1, "divide all amounts by this, to try the program itself; writes no document")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := cluster.Root()
	if err == nil && *profiles != "" {
		err = os.MkdirAll(*profiles, 0o755)
	}
	if err == nil {
		b := &bench{
			root:     root,
			bin:      filepath.Join(root, "bin"),
			runs:     *runs,
			profiles: *profiles,
			amounts:  fullAmounts.dividedBy(*scale),
		}
		err = b.measure(ctx, *only, *scale == 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-scheduler:", err)
		os.Exit(1)
	}
}

// bench collects the figures of the parts.
type bench struct {
	root, bin string
	runs      int
	profiles  string // folder; empty: no profiles
	amounts   amounts
	figures   []*figure
}

// amounts is the amounts of all measurements.
type amounts struct {
	nodes, pods  int    // of the part whole: the pods are placed on the nodes
	replicas     int    // replicas of the Deployment
	dependents   int    // dependents that the garbage collector deletes
	storedPods   int    // pods in the store while memory is measured
	configMaps   int    // ConfigMaps of 10 KiB in the store while memory is measured
	perSet       int    // pods of a ReplicaSet
	benchmarking string // how long each Go benchmark runs
	// idleTime is how long a process has been idle when its memory is measured. A process returns unused memory some
	// seconds after it has become idle.
	idleTime time.Duration
}

var fullAmounts = amounts{
	nodes:        5000,
	pods:         10000,
	replicas:     1000,
	dependents:   10000,
	storedPods:   50000,
	configMaps:   10000,
	perSet:       100,
	benchmarking: "5s",
	idleTime:     30 * time.Second,
}

func (s amounts) dividedBy(n int) amounts {
	if n <= 1 {
		return s
	}
	for _, amount := range []*int{&s.nodes, &s.pods, &s.replicas, &s.dependents, &s.storedPods, &s.configMaps} {
		*amount = max(*amount/n, 10)
	}
	s.perSet, s.benchmarking, s.idleTime = min(s.perSet, s.pods), "1x", 0
	return s
}

var parts = []struct {
	name string
	work func(*bench, context.Context) error
}{
	{"algorithm", (*bench).measureAlgorithm},
	{"whole", (*bench).measureWhole},
	{"deployment", (*bench).measureDeployment},
	{"collection", (*bench).measureCollection},
	{"memory", (*bench).measureMemory},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func (b *bench) measure(ctx context.Context, only string, write bool) error {
	chosen, err := report.SelectParts(partNames(), only)
	if err != nil {
		return err
	}
	for range b.runs {
		for _, p := range parts {
			if !slices.Contains(chosen, p.name) {
				continue
			}
			if err := p.work(b, ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	text := b.report()
	fmt.Print(text)
	if only != "" || !write {
		return nil
	}
	return document.Write(filepath.Join(b.root, "docs", "benchmarks-scheduler.md"), text)
}
