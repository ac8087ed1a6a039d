// Command plan measures the provisioner: reading configurations, and a run with a thousand machines in memory. On a lab
// of real machines it measures an installation, two thousand objects, and the same files installed by Ansible. It
// writes docs/benchmarks-plan.md, which states for each mark whether it was met.
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

func main() {
	runs := flag.Int("runs", 3, "of each measurement, of which the median counts")
	only := flag.String("only", "", "measure only these parts, and write no document: language,engine,small,ha,ansible")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measureAll(ctx, *runs, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench-plan:", err)
		os.Exit(1)
	}
}

// bench collects the figures of the parts.
type bench struct {
	root      string
	runs      int
	figures   []*figure
	installed *installedFiles // what a first apply has installed on machines
}

// figure is one line of the table.
type figure struct {
	work, unit string
	mark       float64 // the maximum; a minimum if isMinimum is set
	isMinimum  bool
	values     []float64
	note       string
}

func (b *bench) add(work, unit string, mark, value float64) *figure {
	at := slices.IndexFunc(b.figures, func(f *figure) bool { return f.work == work && f.unit == unit })
	if at < 0 {
		at = len(b.figures)
		b.figures = append(b.figures, &figure{work: work, unit: unit, mark: mark})
	}
	f := b.figures[at]
	f.values = append(f.values, value)
	fmt.Printf("%s: %.3g %s\n", work, value, unit)
	return f
}

func (f *figure) median() float64 { return report.Median(f.values) }

func (f *figure) isMet() bool {
	if f.isMinimum {
		return f.median() >= f.mark
	}
	return f.median() <= f.mark
}

func measureAll(ctx context.Context, runs int, only string) error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	b := &bench{root: root, runs: runs}
	for _, part := range []struct {
		name string
		work func(*bench, context.Context) error
	}{{"language", (*bench).language}, {"engine", (*bench).engine}, {"small", (*bench).measureSmall},
		{"ha", (*bench).measureHA},
		{"ansible", (*bench).ansible}} {
		if only != "" && !slices.Contains(strings.Split(only, ","), part.name) {
			continue
		}
		if err := part.work(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	text := b.report()
	fmt.Print(text)
	if only != "" {
		return nil
	}
	return document.Write(filepath.Join(root, "docs", "benchmarks-plan.md"), text)
}

func (b *bench) report() string {
	var out strings.Builder
	out.WriteString(report.Heading("What provisioning costs", "bench-plan"))
	fmt.Fprintf(&out, `
The median of %d run(s) counts, with the least and the most beside it. CPU seconds depend little on what else a machine does, clock times much.
All machines of a lab share the cores of one host with the tool.

| work | unit | mark | measured | range | |
|---|---|---|---|---|---|
`, b.runs)
	for _, f := range b.figures {
		sign, verdict, mark := "≤", "met", ""
		if f.isMinimum {
			sign = "≥"
		}
		if f.mark > 0 {
			mark = fmt.Sprintf("%s %.4g", sign, f.mark)
			if !f.isMet() {
				verdict = "**missed**"
			}
		} else {
			verdict = ""
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %.3g | %.3g to %.3g | %s%s |\n", f.work, f.unit, mark, f.median(),
			slices.Min(f.values), slices.Max(f.values), verdict, f.note)
	}
	out.WriteString(`
## Method

- Validate: a file of so many blocks is read, evaluated and checked in one process, as ` + "`clusterctl validate`" + ` does; the plan without a cluster also works out all API objects.
- 1,000 machines: ` + "`BenchmarkMachines`" + ` of provision/run, one control-plane machine and 999 nodes in memory, the tool and all agents in one process,
  with the agents' real protocol between them. The heap is the largest that was seen, every 50 ms.
- Bare to serving: machines that have only Debian, systemd and sshd; from the start of ` + "`clusterctl apply`" + ` until curl on a node gets an answer
  through the Service's address. CPU is of the tool on the operator's side.
- 2,000 objects: ConfigMaps, each a block of its own, on the lab of one control-plane machine and two nodes. A new one is planned, then all are applied, applied
  again with nothing to do, with one changed, and with all taken out. Each is one command, machines are looked at as well.
- Ansible: Debian's ansible-core, which lays what clusterctl has laid on the same machines, and starts the same units: programs as one archive, all other
  files each with its owner and mode, pipelining, ControlPersist, ten forks and no facts gathered; certificates are there already and are only copied. Python is put on
  the machines before the clock runs. The ratios are Ansible's figure by that of the cold apply, which besides makes the certificates, checks everything, brings the
  workload in and waits until it serves.
`)
	return out.String()
}
