package main

import (
	_ "embed" // the figures of the last release
	"fmt"
	"strconv"
	"strings"
)

// lastReleaseReport is the table of docs/benchmarks-api.md at the last release. Each release copies the file. A
// comparison with the last run instead would never report a cost that grows a little with each change.
//
//go:embed released.md
var lastReleaseReport string

// tolerance is the relative difference up to which a worse figure is not reported. Two runs of the same build differ by
// as much.
const tolerance = 0.1

// readFigures returns the measured figures of an earlier report, by the work that was measured. It returns none for a
// file in another format.
func readFigures(report string) map[string]float64 {
	figures := map[string]float64{}
	for row := range strings.Lines(report) {
		cells := strings.Split(row, "|")
		if len(cells) < 7 {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(cells[5]), 64); err == nil {
			figures[strings.TrimSpace(cells[1])] = value
		}
	}
	return figures
}

// describeWorse returns a line for each figure that is higher by more than tolerance than in an earlier report. All
// figures are costs.
func describeWorse(figures []figure, before map[string]float64) (lines []string) {
	for _, f := range figures {
		was, ok := before[f.work]
		switch {
		case !ok:
		case was == 0 && f.measured > 0:
			lines = append(lines, fmt.Sprintf("%s: %.4g %s, it was 0", f.work, f.measured, f.unit))
		case was > 0 && f.measured > was*(1+tolerance):
			lines = append(lines, fmt.Sprintf("%s: %.4g %s, it was %.4g (%+.0f %%)",
				f.work, f.measured, f.unit, was, 100*(f.measured/was-1)))
		}
	}
	return lines
}
