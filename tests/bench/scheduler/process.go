package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/tests/lab/plane"
)

// cpuClockSched selects the clock that counts the time that the scheduler gave to a process, in nanoseconds. It is
// CPUCLOCK_SCHED of Linux. It is in the lowest three bits of the clock id of a process, and the other bits are the
// complement of the process id.
const cpuClockSched = 2

// cpuTime returns the user and system time that processes have used so far. It reads the CPU clock of each process,
// because /proc/PID/stat has a resolution of 10 ms, which is more than a small run needs.
func cpuTime(processes ...*plane.Process) (total time.Duration, err error) {
	for _, p := range processes {
		var used unix.Timespec
		if err := unix.ClockGettime(int32(^p.PID()<<3|cpuClockSched), &used); err != nil {
			return 0, fmt.Errorf("CPU time of %s, process %d: %w", p.Command()[0], p.PID(), err)
		}
		total += time.Duration(used.Nano())
	}
	return total, nil
}

// anonymousMemory returns the anonymous memory of a process in MiB.
func anonymousMemory(p *plane.Process) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("%s has ended: %w", p.Command()[0], err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("%s has ended: it has no memory any more, and has said\n%s", p.Command()[0], p.LogTail())
}

const (
	idleInterval = 500 * time.Millisecond
	idleChecks   = 4
	idleMaxCPU   = 10 * time.Millisecond // CPU time within idleInterval
)

// awaitIdle waits until the processes are idle.
func awaitIdle(ctx context.Context, processes ...*plane.Process) error {
	last, err := cpuTime(processes...)
	if err != nil {
		return err
	}
	for quiet := 0; quiet < idleChecks; {
		if err := pause(ctx, idleInterval); err != nil {
			return err
		}
		now, err := cpuTime(processes...)
		if err != nil {
			return err
		}
		if quiet++; now-last > idleMaxCPU {
			quiet = 0
		}
		last = now
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// measureCPU calls work, and returns the CPU time that each process group used meanwhile.
func measureCPU(work func() error, groups ...[]*plane.Process) ([]time.Duration, error) {
	before := make([]time.Duration, len(groups))
	var err error
	for i, g := range groups {
		if before[i], err = cpuTime(g...); err != nil {
			return nil, err
		}
	}
	if err := work(); err != nil {
		return nil, err
	}
	out := make([]time.Duration, len(groups))
	for i, g := range groups {
		now, err := cpuTime(g...)
		if err != nil {
			return nil, err
		}
		out[i] = now - before[i]
	}
	return out, nil
}
