package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// measure is a row of the table that is one value of a benchmark.
type measure struct {
	benchmark, unit string
	factor          float64
	figure
}

// suite is the benchmarks of one package, and how long each runs.
type suite struct {
	path string // the package's path from the root of the repository
	run  []struct{ benchmarks, time string }
}

// benchmarks runs the Go benchmarks of the packages, which measure the CPU time of their processes, and adds a figure
// for each measure.
func (b *bench) benchmarks(ctx context.Context, measures []measure, suites ...suite) error {
	dir, err := os.MkdirTemp("", "bench-network-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	found := map[string]float64{}
	for _, s := range suites {
		program := filepath.Join(dir, strings.ReplaceAll(s.path, "/", "-")+".test")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-tags", "grpcnotrace", "-o", program,
			"./"+s.path)
		build.Dir, build.Stderr = b.root, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the benchmarks of %s: %w", s.path, err)
		}
		for _, of := range s.run {
			run := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", of.benchmarks, "-test.benchtime",
				of.time)
			run.Dir, run.Stderr = filepath.Join(b.root, s.path), os.Stderr
			text, err := run.Output()
			if err != nil {
				return fmt.Errorf("run %s of %s: %w\n%s", of.benchmarks, s.path, err, text)
			}
			parseBenchmarks(string(text), found)
		}
	}
	for _, m := range measures {
		value, ok := found[m.benchmark+" "+m.unit]
		if !ok {
			return fmt.Errorf("the benchmarks did not say what %s is of %s: %v", m.unit, m.benchmark, found)
		}
		b.add(m.figure, value*m.factor)
	}
	return nil
}

// parseBenchmarks adds each value that benchmarks have printed to into. Its key is the benchmark's name, without the
// prefix and suffix of Go, and the unit.
func parseBenchmarks(text string, into map[string]float64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i >= 0 {
			if _, err := strconv.Atoi(name[i+1:]); err == nil {
				name = name[:i] // without the number of cores
			}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				into[name+" "+fields[i+1]] = value
			}
		}
	}
}
