package main

import (
	"fmt"
	"os"
	"strings"

	"clusterctl/tests/bench/report"
)

// figure is one line of the table.
type figure struct {
	work, unit string
	value      float64
	mark       float64 // most that meets the mark
	hasMark    bool
	isReduced  bool // measured with a smaller amount than that of the mark
	note       string
}

// add adds a figure without a mark.
func (b *bench) add(work, unit string, value float64, note string) {
	b.record(figure{work: work, unit: unit, value: value, note: note})
}

// addMarked adds a figure that should be at most mark.
func (b *bench) addMarked(work, unit string, value, mark float64, note string) {
	b.record(figure{work: work, unit: unit, value: value, mark: mark, hasMark: true, note: note})
}

func (b *bench) record(f figure) {
	f.isReduced = b.isReduced
	b.figures = append(b.figures, f)
	fmt.Fprintf(os.Stderr, "%s: %.4g %s (%s %s) %s\n", f.work, f.value, f.unit, f.limit(), f.verdict(), f.note)
}

// limit returns the mark as text.
func (f figure) limit() string {
	if !f.hasMark {
		return ""
	}
	return fmt.Sprintf("≤ %.4g", f.mark)
}

// verdict returns whether the mark is met, as text.
func (f figure) verdict() string {
	switch {
	case !f.hasMark:
		return ""
	case f.value <= f.mark && f.isReduced:
		return "not comparable"
	case f.value <= f.mark:
		return "met"
	}
	return "**missed**"
}

func (b *bench) report() string {
	var out strings.Builder
	out.WriteString(report.Heading("What GitOps costs", "bench-gitops"))
	fmt.Fprintf(&out, `
The amounts of this run were %d sources, %d objects in one source and %d releases. The marks are for 1,000 sources,
10,000 objects and 1,000 releases on two cores that do nothing else. A row with a smaller amount meets no mark; it can
only miss one.
`, b.sources, b.objects, b.releases)
	out.WriteString(`
One run. CPU is user and system time of a process, which depends little on what else the machine does. Clock times
depend on it much: a load average above the number of cores says that other programs had a part of them.

| work | unit | mark | measured | | |
|---|---|---|---|---|---|
`)
	for _, f := range b.figures {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", f.work, f.unit, f.limit(), formatValue(f.value),
			f.verdict(), f.note)
	}
	out.WriteString(methodText)
	return out.String()
}

// formatValue returns three digits of a value, and all of its integer part.
func formatValue(value float64) string {
	if value >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

const methodText = `
## Method

- Every part has a control plane of its own: etcd with fsync and an API server with mutual TLS, as processes, and the
  GitOps controller as a process with its default settings. There are no other controllers and no nodes, so that the
  objects are kinds that are healthy without them.
- The Git server is git http-backend, started for each request by a handler on loopback. One repository has the folders
  of all sources. The server, etcd and the API server share the cores with the controller.
- CPU is read from the CPU clock of the process. Memory is VmHWM of /proc/PID/status: the most that was resident,
  including the pages of the program file.
- Writes are the requests that change something and are no dry runs, as the API server counts them. Those of GitSources
  and events are in the note.
- Sources: the objects of a source are a namespace with nine objects. The first apply ends when all sources are ready.
  A round without changes is that of the interval. It ends when the controller has counted as many reconciliations as
  there are sources.
- Large: a commit changes one of the objects, and a signed webhook reports it. The time is from that request until a
  read of the object shows the change.
- Diff: ` + "`gitops-controller diff`" + `, which ` + "`clusterctl gitops diff`" + ` runs. It clones the repository
  into an empty cache, renders it and compares every object. CPU and memory are those of the process.
- Helm: one chart with five objects; each source has other values.
- Why: ` + "`clusterctl why`" + ` for a service that a source has created, with the start of the program.
`
