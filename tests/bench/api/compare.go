package main

import (
	_ "embed" // the figures of the last release
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"clusterctl/tests/bench/report"
)

// lastReleaseReport is the table of docs/benchmarks-api.md at the last release. Each release copies the file. A
// comparison with the last run instead would never report a cost that grows a little with each change.
//
//go:embed released.md
var lastReleaseReport string

// tolerance is the relative difference up to which a worse figure is not reported.
const tolerance = 0.05

// reportedFigure is a figure of an earlier report.
type reportedFigure struct {
	value float64
	etcd  float64 // etcd's CPU time for each operation in milliseconds; 0 if the report has none
}

// etcdPattern matches etcd's CPU time in the note of a figure.
var etcdPattern = regexp.MustCompile(`etcd ([0-9.]+) CPU ms`)

// etcdTime returns etcd's CPU time of a note; 0 if the note has none.
func etcdTime(note string) float64 {
	match := etcdPattern.FindStringSubmatch(note)
	if match == nil {
		return 0
	}
	value, err := strconv.ParseFloat(match[1], 64)
	if err != nil {
		return 0
	}
	return value
}

// readFigures returns the measured figures of an earlier report, by the work that was measured. It returns none for a
// file in another format.
func readFigures(text string) map[string]reportedFigure {
	figures := map[string]reportedFigure{}
	for row := range strings.Lines(text) {
		cells := strings.Split(row, "|")
		if len(cells) < 9 {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(cells[5]), 64); err == nil {
			figures[strings.TrimSpace(cells[1])] = reportedFigure{value, etcdTime(cells[8])}
		}
	}
	return figures
}

// minEtcdTime is the smallest CPU time of etcd, in milliseconds, that is measured precisely enough to compare. etcd
// takes more for each write.
const minEtcdTime = 0.1

// machineFactor returns how much more CPU time the same work takes than at an earlier report. The load of other
// programs changes it from run to run. etcd, which each write uses alike, is the reference. The factor is 1 without
// such figures.
func machineFactor(figures []figure, before map[string]reportedFigure) float64 {
	var factors []float64
	for _, f := range figures {
		now, earlier := etcdTime(f.note), before[f.work].etcd
		if now >= minEtcdTime && earlier >= minEtcdTime {
			factors = append(factors, now/earlier)
		}
	}
	if len(factors) == 0 {
		return 1
	}
	return report.Median(factors)
}

// describeWorse returns a line for each figure that is higher by more than tolerance than in an earlier report. All
// figures are costs. CPU times are divided by the machine factor.
func describeWorse(figures []figure, before map[string]reportedFigure) (lines []string) {
	factor := machineFactor(figures, before)
	for _, f := range figures {
		earlier, ok := before[f.work]
		now := f.measured
		if strings.HasPrefix(f.unit, "CPU") {
			now /= factor
		}
		switch {
		case !ok:
		case earlier.value == 0 && now > 0:
			lines = append(lines, fmt.Sprintf("%s: %.4g %s, it was 0", f.work, now, f.unit))
		case earlier.value > 0 && now > earlier.value*(1+tolerance):
			lines = append(lines, fmt.Sprintf("%s: %.4g %s, it was %.4g (%+.0f %%)",
				f.work, now, f.unit, earlier.value, 100*(now/earlier.value-1)))
		}
	}
	return lines
}
