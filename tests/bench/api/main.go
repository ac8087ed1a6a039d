// Command api measures the API server against upstream's figures, with kubebench over mutual TLS and its own etcd, and
// writes docs/benchmarks-api.md. It needs no upstream binary: upstream was measured once on a machine of this kind, and
// its figures are in the code.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"clusterctl/tests/bench/report"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/plane"
	"clusterctl/tests/tools/document"
)

func main() {
	scale := flag.Int("scale", 1, "divide all amounts by this, to try the program itself")
	only := flag.String("only", "", "measure only this part: objects, lists, storm, memory, starts")
	hold := flag.Bool("serve", false,
		"measure nothing: start the servers, say how they are reached, and end them when interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *hold {
		if err := serve(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench-api:", err)
			os.Exit(1)
		}
		return
	}
	if err := measureAll(ctx, *scale, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench-api:", err)
		os.Exit(1)
	}
}

func measureAll(ctx context.Context, scale int, only string) (err error) {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	var figures []figure
	for _, part := range []struct {
		name string
		work []func(*bench, context.Context) error
	}{
		{"objects", []func(*bench, context.Context) error{(*bench).measureObjects}},
		{"lists", []func(*bench, context.Context) error{(*bench).measureLists, (*bench).measureWatches}},
		{"storm", []func(*bench, context.Context) error{(*bench).populate, (*bench).restart, (*bench).measureStorm}},
		{"memory", []func(*bench, context.Context) error{(*bench).measureMemory}},
		{"starts", []func(*bench, context.Context) error{(*bench).stop, (*bench).startEmpty, (*bench).restart,
			(*bench).fill, (*bench).stop, (*bench).startFull}},
	} {
		if only != "" && only != part.name {
			continue
		}
		// Each part has its own API server and store, so that memory of one part does not count in another.
		if err := measureAlone(ctx, filepath.Join(root, "bin"), scale, part.work, &figures, false); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	text := formatReport(figures)
	fmt.Print(text)
	path := filepath.Join(root, "docs", "benchmarks-api.md")
	if scale == 1 {
		printWorse(figures)
	}
	if scale != 1 || only != "" {
		return nil
	}
	return document.Write(path, text)
}

// printWorse prints the figures that are worse than at the last release.
func printWorse(figures []figure) {
	before := readFigures(lastReleaseReport)
	lines := describeWorse(figures, before)
	if len(lines) == 0 {
		fmt.Printf("\nNo figure is worse than at the last release by more than %.0f %%.\n", 100*tolerance)
		return
	}
	fmt.Printf("\nWorse than at the last release by more than %.0f %%, with CPU times divided by %.2f, because etcd "+
		"takes so much more for the same writes:\n", 100*tolerance, machineFactor(figures, before))
	for _, line := range lines {
		fmt.Println("  " + line)
	}
}

// serve starts the servers, prints how to reach them, and waits, so that the user can examine them with kubebench or a
// profiler.
func serve(ctx context.Context) error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	return measureAlone(ctx, filepath.Join(root, "bin"), 1, []func(*bench, context.Context) error{
		func(b *bench, ctx context.Context) error {
			fmt.Printf("KUBECONFIG=%s API=%d ETCD=%d\n", b.Kubeconfig(), b.API[0].PID(), b.Etcd[0].PID())
			<-ctx.Done()
			return nil
		},
	}, new([]figure), true)
}

func measureAlone(
	ctx context.Context,
	bin string,
	scale int,
	work []func(*bench, context.Context) error,
	figures *[]figure,
	profiling bool,
) (err error) {
	dir, err := os.MkdirTemp("", "bench-api-")
	if err != nil {
		return err
	}
	p, err := plane.New(ctx, plane.Options{Bin: bin, Dir: dir, Profiling: profiling})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := p.Close(); err == nil {
			err = closeErr
		}
	}()
	b := &bench{Plane: p, scale: scale}
	if err := b.restart(ctx); err != nil {
		return err
	}
	for _, f := range work {
		if err := f(b, ctx); err != nil {
			return err
		}
	}
	*figures = append(*figures, b.figures...)
	return nil
}

func (b *bench) stop(context.Context) error { return b.API[0].Stop() }

func (b *bench) restart(ctx context.Context) error {
	if err := b.API[0].Stop(); err != nil {
		return err
	}
	if err := b.API[0].Start(ctx); err != nil {
		return err
	}
	return b.Ready(ctx, 0)
}

func (b *bench) startEmpty(ctx context.Context) error {
	return b.measureStarts(ctx, "the store as the first start left it", 2.2, 0.3)
}

func (b *bench) startFull(ctx context.Context) error {
	return b.measureStarts(ctx, "50,000 pods", 5.9, 1)
}

func (b *bench) fill(ctx context.Context) error {
	_, err := b.kubebench(ctx, "create", "--kind", "pod", "--n", b.scaled(50000), "--concurrency", "64")
	return err
}

// populate creates the objects that the informers of a storm list.
func (b *bench) populate(ctx context.Context) error {
	for _, args := range [][]string{
		{"nodes", "--n", b.scaled(200)}, {"create", "--kind", "pod", "--n", b.scaled(5000)},
		{"create", "--kind", "configmap", "--n", b.scaled(200)},
	} {
		if _, err := b.kubebench(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func formatReport(figures []figure) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The API server's cost\n\nWritten by `make bench-api` %s.\n", report.Environment())
	b.WriteString(`
Upstream's column is Kubernetes 1.36.3, measured once on a machine of the same kind with the same load generator, the same etcd and the same
settings. Where it has no figure, it was not measured.

| work | unit | upstream | mark | measured | upstream ÷ measured | | |
|---|---|---|---|---|---|---|---|
`)
	for _, f := range figures {
		upstream, ratio, verdict := "", "", "met"
		if f.upstream > 0 {
			upstream = fmt.Sprintf("%.4g", f.upstream)
			if f.measured > 0 {
				ratio = fmt.Sprintf("%.1f", f.upstream/f.measured)
			}
		}
		mark := fmt.Sprintf("%.4g", f.mark)
		if f.goal > 0 {
			mark += fmt.Sprintf(", then %.4g", f.goal)
			verdict = "met, both"
		}
		switch {
		case f.measured > f.mark:
			verdict = "**missed**"
		case f.goal > 0 && f.measured > f.goal:
			verdict = "met, the further one missed"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.4g | %s | %s | %s |\n", f.work, f.unit, upstream, mark, f.measured,
			ratio, verdict, f.note)
	}
	b.WriteString(`
## Method

- ` + "`tests/bench/kubebench`" + ` drives ` + "`clusterctl daemon kube-apiserver`" + ` over loopback with client certificates; the API server talks to ` + "`bin/etcd`" + ` with mutual TLS
  and fsync. Each part of the table has a fresh store and a fresh server.
- CPU is user and system time of the API server's process from /proc, divided by the number of operations: unlike elapsed time, it hardly
  depends on what else the machine does. 16 requests in flight on one connection for single objects; one list at a time.
- Single objects are measured in five rounds: the median is what counts, with the range beside it. etcd's CPU says how fast the machine was at
  the time: a create of a configmap needed 0.42 ms of the same etcd when upstream was measured.
- Watches are counted and timed without decoding, from the writer's stamp to the frame's arrival, ten watches per connection. Of three rounds
  the median of each figure counts, with the range beside it: one stall of half a second, of the disk say, is in a round's 99th percentile,
  and the updates' own, of the same round, says so. While events keep coming, one that more than 256 watches are told of waits for the next, 60 ms at most: latency that CPU is bought with. The first after a rest does
  not wait, nor do events that fewer watches want.
- A storm: the server is restarted, then 2,000 informers list and watch at once (half of them a node's pods each), 10 per connection; it has settled when the
  last watch is open. etcd's own counter of range requests is read before and after. Watches that begin with what there is, as new clients open them, are
  promised what is newest: they share questions to etcd for its revision, each of them a range request that reads no key.
- Memory is VmRSS. Emptied means after four rounds of 20,000 pods created, 40,000 read, 20,000 updated and 20,000 deleted, and a minute of rest.
- Start is the median of five, from exec to the first 200 of /readyz, and has the server begin once more to be woken less often, which its unit spares it.
`)
	return b.String()
}
