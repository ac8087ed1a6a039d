// Package report has what the reports of the benchmarks share: the machine, the median of several runs, and the choice
// of parts.
package report

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Environment describes today's date and this machine, as "on 2026-11-27: 2 cores, Linux 6.18, go1.26.8".
func Environment() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("on %s: %d cores, Linux %s, %s", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		strings.TrimSpace(string(kernel)), runtime.Version())
}

// Heading returns the title and the first paragraph of a report that a target of make has written.
func Heading(title, target string) string {
	load, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(load))
	return fmt.Sprintf("# %s\n\nWritten by `make %s` %s; load average when it ended "+
		"%s.\n", title, target, Environment(),
		strings.Join(fields[:min(len(fields), 3)], " "))
}

// Median returns the median of values, of which there must be at least one.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// SelectParts returns the parts that the flag -only selects: all if it is empty. It returns an error if there is no
// part with a name.
func SelectParts(parts []string, only string) ([]string, error) {
	if only == "" {
		return parts, nil
	}
	selected := strings.Split(only, ",")
	for _, name := range selected {
		if !slices.Contains(parts, name) {
			return nil, fmt.Errorf("-only: no part is named %q", name)
		}
	}
	return selected, nil
}
