package main

import (
	"fmt"
	"slices"
	"testing"
)

// TestFiguresAreComparedWithAnEarlierReport parses a report that the program writes.
func TestFiguresAreComparedWithAnEarlierReport(t *testing.T) {
	before := readFigures(formatReport([]figure{
		{work: "create pod, json", unit: "CPU ms", upstream: 1.21, mark: 0.3, measured: 0.168, note: "0.15 to 0.18"},
		{work: "get pod, json", unit: "CPU ms", upstream: 0.64, mark: 0.1, measured: 0.038},
		{work: "broken watches", measured: 0}, {work: "RSS, idle", unit: "MiB", mark: 67.5, goal: 45,
			measured: 57.23},
		{work: "gone", unit: "s", measured: 1},
	}))
	if len(before) != 5 || before["RSS, idle"] != (reportedFigure{57.23, 0}) {
		t.Errorf("read %v", before)
	}
	got := describeWorse([]figure{
		{work: "create pod, json", unit: "CPU ms", measured: 0.192}, {work: "get pod, json", unit: "CPU ms",
			measured: 0.0399},
		{work: "broken watches", unit: "watches", measured: 3}, {work: "RSS, idle", unit: "MiB", measured: 50},
		{work: "new", measured: 7},
	}, before)
	want := []string{"create pod, json: 0.192 CPU ms, it was 0.168 (+14 %)", "broken watches: 3 watches, it was 0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if figures := readFigures(lastReleaseReport); figures["create pod, json"].value == 0 || len(figures) < 30 {
		t.Errorf("released.md has the figures %v, want at least 30", figures)
	}
	if figures := readFigures("# Nothing\n\n| a | b |\n"); len(figures) != 0 {
		t.Errorf("figures of a file without figures: %v", figures)
	}
}

// TestSlowerMachineIsNotReported compares CPU times relative to those of etcd, and other figures as they are.
func TestSlowerMachineIsNotReported(t *testing.T) {
	created := func(work string, measured, etcd float64) figure {
		return figure{work: work, unit: "CPU ms", measured: measured, note: fmt.Sprintf("etcd %.2f CPU ms", etcd)}
	}
	before := readFigures(formatReport([]figure{
		created("create", 0.2, 0.3), created("update", 0.2, 0.3), created("patch", 0.2, 0.3),
		created("get", 0.05, 0.02),
		{work: "RSS", unit: "MiB", measured: 50},
	}))
	if before["update"] != (reportedFigure{0.2, 0.3}) {
		t.Errorf("read %v", before)
	}
	figures := []figure{
		created("create", 0.4, 0.6), created("update", 0.42, 0.6), created("patch", 0.424, 0.61),
		created("get", 0.1, 0.09),
		{work: "RSS", unit: "MiB", measured: 53},
	}
	if factor := machineFactor(figures, before); factor != 2 {
		t.Errorf("the machine's factor is %v", factor)
	}
	want := []string{"patch: 0.212 CPU ms, it was 0.2 (+6 %)", "RSS: 53 MiB, it was 50 (+6 %)"}
	if got := describeWorse(figures, before); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if factor := machineFactor(figures, nil); factor != 1 {
		t.Errorf("without an earlier report the machine's factor is %v", factor)
	}
}
