// Command network measures the cost of the network against its marks, and writes docs/benchmarks-network.md. Upstream
// was measured once on a machine of this kind, and its figures are in the code.
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

	"clusterctl/tests/bench/report"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/tools/document"
)

// parts are the parts of the measurement, with a file each.
var parts = []part{
	{"proxy", (*bench).proxy, proxyMethod},
	{"policy", (*bench).policy, policyMethod},
	{"pods", (*bench).pods, podsMethod},
	{"dns", (*bench).dns, dnsMethod},
	{"balancer", (*bench).balancer, balancerMethod},
}

type part struct {
	name   string
	work   func(*bench, context.Context) error
	method string // Markdown list that describes the method
}

// bench collects the figures of the parts.
type bench struct {
	root    string
	runs    int
	figures []*figure
}

func main() {
	runs := flag.Int("runs", 3, "of each measurement, of which the median counts")
	only := flag.String("only", "", "measure only these parts, and write no document: "+strings.Join(partNames(), ","))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := cluster.Root()
	if err == nil {
		err = (&bench{root: root, runs: *runs}).measure(ctx, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-network:", err)
		os.Exit(1)
	}
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func (b *bench) measure(ctx context.Context, only string) error {
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
	if only != "" {
		return nil
	}
	return document.Write(filepath.Join(b.root, "docs", "benchmarks-network.md"), text)
}
