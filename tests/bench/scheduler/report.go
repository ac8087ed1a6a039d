package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"clusterctl/tests/bench/report"
)

// figure is one line of the table.
type figure struct {
	work, unit string
	upstream   string  // what upstream 1.36.3 needed on such a machine; empty: not measured
	mark       float64 // 0: none
	isMinimum  bool    // the mark is a minimum, not a maximum
	values     []float64
	note       string // note of the last run
}

// add adds a value that a run has measured to its figure.
func (b *bench) add(f figure, value float64) {
	at := slices.IndexFunc(b.figures, func(got *figure) bool { return got.work == f.work && got.unit == f.unit })
	if at < 0 {
		at = len(b.figures)
		b.figures = append(b.figures, &f)
	}
	got := b.figures[at]
	got.values, got.note = append(got.values, value), f.note
	fmt.Fprintf(os.Stderr, "%s: %.4g %s (%s) %s\n", f.work, value, f.unit, got.limitText(), f.note)
}

func (f *figure) median() float64 { return report.Median(f.values) }

// limitText returns the mark as text.
func (f *figure) limitText() string {
	switch {
	case f.mark == 0:
		return "no mark"
	case f.isMinimum:
		return fmt.Sprintf("≥ %.4g", f.mark)
	}
	return fmt.Sprintf("≤ %.4g", f.mark)
}

// verdict returns whether the mark is met, as text.
func (f *figure) verdict() string {
	m := f.median()
	switch {
	case f.mark == 0:
		return ""
	case f.isMinimum && m >= f.mark, !f.isMinimum && m <= f.mark:
		return "met"
	}
	return "**missed**"
}

func (b *bench) report() string {
	var out strings.Builder
	out.WriteString(report.Heading("What scheduling and controllers cost", "bench-scheduler"))
	fmt.Fprintf(&out, `
The median of %d run(s) counts, with the least and the most beside it. CPU is user and system time of processes, which depends little on
what else the machine does; rates and clock times depend on it much, and a load average above the number of cores says that others
had a part of them. Upstream's figures are those of Kubernetes 1.36.3 on a machine of this kind that did nothing else.

| work | unit | upstream | mark | measured | range | | |
|---|---|---|---|---|---|---|---|
`, b.runs)
	for _, f := range b.figures {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %.3g | %.3g to %.3g | %s | %s |\n", f.work, f.unit, f.upstream,
			f.limitText(), f.median(), slices.Min(f.values), slices.Max(f.values), f.verdict(), f.note)
	}
	out.WriteString(methodText)
	return out.String()
}

const methodText = `
## Method

- Every part has a control plane of its own: etcd with fsync, API server, scheduler and controllers as processes with the
  settings that they have by themselves, mutual TLS and a certificate each. Nodes are objects that nobody stands behind;
  where controllers run among them, ` + "`--node-monitor-grace-period`" + ` is a day, so that none counts as lost.
- CPU is read from /proc/PID/stat before and after. A process has come to rest when it used less than 2 % of a core for two seconds.
- Algorithm: ` + "`BenchmarkPlace`, `BenchmarkPreempt` and `BenchmarkEvent`" + ` of daemons/scheduler, from the pod object to its node with the pod counted there;
  CPU of the whole process, collector of garbage included, while the benchmark's loop runs. Flat is the dearest size by the cheapest of one kind of pod.
- Whole daemon: pods of ReplicaSets are created before the scheduler starts. The rate is from the start of its process until a
  watch has shown the last pod bound; CPU is from that start until all have come to rest, so that reading the cluster, the
  binding and the event of every pod are in it. Upstream's figures stop at the last pod bound, and its pods were bare.
- Deployment: the controllers run and rest; then from the request that creates it until a watch has shown the last pod.
- This machine: etcd does the same work here as it did beside upstream, so its CPU for creating the ConfigMaps of the next part says how fast
  this machine is beside the one of upstream's figures, for which the marks were set. Marks are not changed by it.
- Collection: the dependents are ConfigMaps of 1 KiB with one owner, which is deleted in the background. Requests are those that the API server
  counted for ConfigMaps by then. Before the collector knew its dependents' versions it spent three requests on each.
- Memory: RssAnon of /proc/PID/status, after the daemons were started beside a full store, and have come to rest for half a minute. Pods are on nodes
  and have the status that a kubelet gives them. The note has the most that was seen before, looked at five times a second.
`
