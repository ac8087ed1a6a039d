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
}

// add adds a value that a run has measured to its figure.
func (b *bench) add(f figure, value float64) {
	at := slices.IndexFunc(b.figures, func(got *figure) bool { return got.work == f.work && got.unit == f.unit })
	if at < 0 {
		at = len(b.figures)
		b.figures = append(b.figures, &f)
	}
	b.figures[at].values = append(b.figures[at].values, value)
	fmt.Fprintf(os.Stderr, "%s: %.4g %s %s\n", f.work, value, f.unit, f.limitText())
}

func (f *figure) median() float64 { return report.Median(f.values) }

// limitText returns the mark as text.
func (f *figure) limitText() string {
	switch {
	case f.mark == 0:
		return ""
	case f.isMinimum:
		return fmt.Sprintf("≥ %.4g", f.mark)
	}
	return fmt.Sprintf("< %.4g", f.mark)
}

func (f *figure) verdict() string {
	switch {
	case f.mark == 0:
		return ""
	case f.isMinimum && f.median() >= f.mark, !f.isMinimum && f.median() < f.mark:
		return "met"
	}
	return "**missed**"
}

func (b *bench) report() string {
	var out strings.Builder
	out.WriteString(report.Heading("What the network costs", "bench-network"))
	fmt.Fprintf(&out, `
The median of %d run(s) counts, with the least and the most beside it. CPU is user and system time, which depends little on what else the
machine does; rates and clock times depend on it much. Upstream's figures are those of Kubernetes 1.36.3 on a machine of this kind.

| work | unit | upstream | mark | measured | range | |
|---|---|---|---|---|---|---|
`, b.runs)
	for _, f := range b.figures {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %.4g | %.4g to %.4g | %s |\n", f.work, f.unit, f.upstream,
			f.limitText(), f.median(), slices.Min(f.values), slices.Max(f.values), f.verdict())
	}
	out.WriteString("\n## Method\n\n")
	for _, p := range parts {
		out.WriteString(p.method)
	}
	return out.String()
}
