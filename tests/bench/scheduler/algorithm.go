package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// measureAlgorithm runs the scheduler's own benchmarks, which measure the CPU time of their process.
func (b *bench) measureAlgorithm(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bench-scheduler-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "scheduler.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-tags", "grpcnotrace", "-o", program,
		"./daemons/scheduler")
	build.Dir, build.Stderr = b.root, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the scheduler's benchmarks: %w", err)
	}
	run := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", "^Benchmark(Place|Preempt|Event)$",
		"-test.benchtime", b.amounts.benchmarking)
	run.Dir, run.Stderr = filepath.Join(b.root, "daemons", "scheduler"), os.Stderr
	text, err := run.Output()
	if err != nil {
		return fmt.Errorf("run the scheduler's benchmarks: %w\n%s", err, text)
	}
	return b.addAlgorithmRows(parseResults(text))
}

// addAlgorithmRows adds the rows of the benchmarks' results.
func (b *bench) addAlgorithmRows(cost map[string]float64) error {
	missing := func(name string) error { return fmt.Errorf("the benchmarks did not say what %s costs: %v", name, cost) }
	sizes := []string{"5000_pods", "50000_pods", "150000_pods"}
	for _, of := range []struct {
		name, upstream string
		mark           float64
	}{{"owned", "", 0.15}, {"affinity", "", 0.3}, {"anti-affinity", "", 0.3}, {"spread", "", 0.3}} {
		var each []float64
		for _, size := range sizes {
			name := "Place/" + of.name + "/5000_nodes/" + size
			if cost[name] == 0 {
				return missing(name)
			}
			each = append(each, cost[name])
		}
		b.add(figure{work: "algorithm, 5,000 nodes with 50,000 pods: " + of.name, unit: "CPU ms per pod", mark: of.mark,
			note: fmt.Sprintf("with 5,000 pods %.3f, with 150,000 %.3f", each[0], each[2])}, each[1])
		b.add(figure{work: "the same with 5,000 to 150,000 pods: " + of.name, unit: "dearest by cheapest", mark: 1.5},
			slices.Max(each)/slices.Min(each))
	}
	for _, of := range []struct {
		name, work string
		mark       float64
	}{
		{"Preempt/plain", "preemption among 50,000 pods on 5,000 full nodes", 5},
		{"Preempt/anti-affinity", "the same with required anti-affinity", 20},
		{"Event", "an event with 50,000 pods waiting", 0.05},
	} {
		if cost[of.name] == 0 {
			return missing(of.name)
		}
		b.add(figure{work: of.work, unit: "CPU ms", mark: of.mark}, cost[of.name])
	}
	return nil
}

// parseResults returns the CPU milliseconds of each benchmark's iteration. The keys are the names without the prefix
// and suffix of Go.
func parseResults(text []byte) map[string]float64 {
	out := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		at := slices.Index(fields, "cpu-ms/op")
		if at < 2 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i] // without the number of cores
			}
		}
		if value, err := strconv.ParseFloat(fields[at-1], 64); err == nil {
			out[name] = value
		}
	}
	return out
}
