package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clusterctl/hcl/load"
	"clusterctl/provision/workload"
	"clusterctl/tests/bench/configs"
)

// cpuSeconds returns the CPU seconds that this process has used.
func cpuSeconds() (float64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), err
}

// language measures reading configurations of many blocks.
func (b *bench) language(context.Context) error {
	dir, err := os.MkdirTemp("", "bench-plan-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, c := range []struct {
		work, text string
		mark       float64
		objects    bool
	}{
		{"validate 10,001 machine blocks", configs.Machines(10000), 1.5, false},
		{"validate 5,000 workloads", configs.Workloads(5000), 1, false},
		{"plan of 5,000 objects without a cluster", configs.Objects(5000), 0.5, true},
	} {
		path := filepath.Join(dir, "cluster.hcl")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			return err
		}
		for range b.runs {
			runtime.GC()
			before, err := cpuSeconds()
			if err != nil {
				return err
			}
			start := time.Now()
			read, diags := load.Load(load.Options{Path: path})
			if diags.HasErrors() {
				return diags
			}
			if c.objects {
				if _, err := workload.Objects(read.Cluster); err != nil {
					return err
				}
			}
			wall := time.Since(start).Seconds()
			after, err := cpuSeconds()
			if err != nil {
				return err
			}
			b.add(c.work, "CPU s", c.mark, after-before)
			b.add(c.work, "s", 0, wall)
		}
	}
	return nil
}

// engine measures runs with a thousand machines in memory.
func (b *bench) engine(ctx context.Context) error {
	work := map[string]string{
		"plan":        "1,000 machines, plan",
		"no-op":       "1,000 machines, no-op apply",
		"first-apply": "1,000 machines, first apply",
	}
	marks := map[string]float64{"plan": 1, "no-op": 1.5, "first-apply": 6}
	for range b.runs {
		cmd := exec.CommandContext(ctx, "go", "test", "-trimpath", "-tags", "grpcnotrace", "-run", "^$", "-bench",
			"^BenchmarkMachines$", "-benchtime", "1x", "./provision/run")
		cmd.Dir, cmd.Stderr = b.root, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		found := 0
		lines := bufio.NewScanner(strings.NewReader(string(out)))
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) == 0 || !strings.HasPrefix(fields[0], "BenchmarkMachines") {
				continue
			}
			for i := 2; i+1 < len(fields); i += 2 {
				value, err := strconv.ParseFloat(fields[i], 64)
				if err != nil {
					return err
				}
				if name, ok := strings.CutSuffix(fields[i+1], "-cpu-s"); ok {
					b.add(work[name], "CPU s", marks[name], value)
					found++
				}
				if name, ok := strings.CutSuffix(fields[i+1], "-heap-MiB"); ok {
					b.add(work[name]+", heap", "MiB", 300, value)
				}
			}
		}
		if found != len(work) {
			return fmt.Errorf("%d figures of %d in: %s", found, len(work), out)
		}
	}
	return nil
}
