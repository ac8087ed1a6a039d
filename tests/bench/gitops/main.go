// Command gitops measures the GitOps controller against its marks, as a process beside etcd, an API server and a Git
// server on loopback, and writes docs/benchmarks-gitops.md.
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
	only := flag.String("only", "", "measure only these parts, and write no document: "+strings.Join(partNames(), ","))
	b := &bench{}
	flag.IntVar(&b.sources, "sources", fullSources, "sources of the part sources, of ten objects each")
	flag.IntVar(&b.objects, "objects", fullObjects, "objects of the one source of the part large")
	flag.IntVar(&b.releases, "releases", fullReleases, "releases of the part helm")
	flag.DurationVar(&b.interval, "interval", 2*time.Minute, "interval of the sources; longer than the first apply")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := cluster.Root()
	if err == nil {
		b.bin = filepath.Join(root, "bin")
		err = b.measure(ctx, filepath.Join(root, "docs", "benchmarks-gitops.md"), *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-gitops:", err)
		os.Exit(1)
	}
}

// bench collects the figures of the parts.
type bench struct {
	bin      string // directory of clusterctl, etcd and gitops-controller
	sources  int
	objects  int
	releases int
	interval time.Duration
	figures  []figure

	isReduced bool // the part that is measured has a smaller amount than that of its marks
}

// Amounts of the marks.
const (
	fullSources  = 1000
	fullObjects  = 10000
	fullReleases = 1000
)

var parts = []struct {
	name string
	work func(*bench, context.Context) error
}{
	{"sources", (*bench).measureSources},
	{"large", (*bench).measureLarge},
	{"helm", (*bench).measureHelm},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// measure measures parts, and writes the document if these are all.
func (b *bench) measure(ctx context.Context, path, only string) error {
	selected, err := report.SelectParts(partNames(), only)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if !slices.Contains(selected, p.name) {
			continue
		}
		if err := p.work(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	text := b.report()
	fmt.Print(text)
	if only != "" {
		return nil
	}
	return document.Write(path, text)
}
