package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// The parts that need a control plane complete a measurement. The amounts are too small to show performance.
func TestAllPartsMeasure(t *testing.T) {
	bin, err := cluster.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{bin: bin, runs: 1, amounts: fullAmounts.dividedBy(1000)}
	for _, p := range parts {
		if p.name == "algorithm" {
			continue // it compiles the scheduler again
		}
		if err := p.work(b, t.Context()); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
	}
	if len(b.figures) != 10 {
		t.Errorf("%d figures", len(b.figures))
	}
	for _, f := range b.figures {
		if f.median() <= 0 {
			t.Errorf("%s: %v %s", f.work, f.values, f.unit)
		}
	}
}

func TestBenchmarkResultsAreReadByName(t *testing.T) {
	var text strings.Builder
	for _, kind := range []string{"owned", "affinity", "anti-affinity", "spread"} {
		for _, pods := range []string{"5000", "50000", "150000"} {
			text.WriteString(
				"BenchmarkPlace/" + kind + "/5000_nodes/" + pods + "_pods-2 \t 9999\t 112233 ns/op\t 0.1250 " +
					"cpu-ms/op\t 40 B/op\t 2 allocs/op\n",
			)
		}
	}
	text.WriteString("goos: linux\nBenchmarkPreempt/plain-2 \t 400\t 2 ns/op\t 2.500 " +
		"cpu-ms/op\nBenchmarkPreempt/anti-affinity \t 400\t 2 ns/op\t 7 cpu-ms/op\n")
	b := &bench{}
	if err := b.addAlgorithmRows(parseResults([]byte(text.String()))); err == nil ||
		!strings.Contains(err.Error(), "Event") {
		t.Errorf("a benchmark is missing, and it says %v", err)
	}
	text.WriteString("BenchmarkEvent-2 \t 30000\t 9 ns/op\t 0.04 cpu-ms/op\nPASS\n")
	b = &bench{}
	if err := b.addAlgorithmRows(parseResults([]byte(text.String()))); err != nil || len(b.figures) != 11 {
		t.Fatalf("%d figures, %v", len(b.figures), err)
	}
	for _, f := range b.figures {
		if f.verdict() != "met" {
			t.Errorf("%s: %v", f.work, f.values)
		}
	}
}

func TestMediansAreComparedWithTheirMarks(t *testing.T) {
	b := &bench{runs: 3}
	for _, v := range []float64{3, 1, 2} {
		b.add(figure{work: "cost", unit: "s", mark: 2}, v)
		b.add(figure{work: "rate", unit: "pods/s", mark: 2.5, isMinimum: true}, v)
	}
	text := b.report()
	for _, want := range []string{"| cost | s |  | ≤ 2 | 2 | 1 to 3 | met |", "| rate | pods/s |  | ≥ 2.5 | 2 | 1 to " +
		"3 | **missed** |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestParallelCallsStopAtTheFirstError(t *testing.T) {
	failed := errors.New("it does not work")
	done := make(chan error, 1)
	go func() {
		done <- eachParallel(t.Context(), 1<<40, func(context.Context, int) error { return failed })
	}()
	select {
	case err := <-done:
		if !errors.Is(err, failed) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}
