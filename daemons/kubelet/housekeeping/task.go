// Package housekeeping does the periodic work for the whole node: it evicts pods when the machine is short of
// something, limits the storage of pods, rotates logs, and removes unused images and what is left of former pods.
package housekeeping

import (
	"context"
	"log/slog"
	"time"
)

// Task is a periodic task for the whole node. Each task has its own loop, so that a task that hangs does not delay the
// others. An unmount from a dead file server can hang, for example.
type Task struct {
	Name     string
	Interval time.Duration
	Deadline time.Duration // cancels the context; a task that ignores the context runs on
	Run      func(context.Context)
}

// Run runs all tasks until ctx ends. A task that hangs in the kernel is left running, because it cannot be stopped.
func Run(ctx context.Context, log *slog.Logger, tasks []Task) {
	for _, c := range tasks {
		go runPeriodically(ctx, log, c)
	}
	<-ctx.Done()
}

// runPeriodically runs a task at once and then at every interval, one run at a time. No goroutine waits between runs,
// because a process with many simulated nodes would otherwise have thousands of them.
func runPeriodically(ctx context.Context, log *slog.Logger, c Task) {
	if ctx.Err() != nil {
		return
	}
	start := time.Now()
	one, cancel := context.WithTimeout(ctx, c.Deadline)
	slow := time.AfterFunc(c.Deadline, func() {
		log.Warn("housekeeping takes longer than it should", "what", c.Name, "deadline", c.Deadline)
	})
	c.Run(one)
	took := time.Since(start)
	if !slow.Stop() {
		log.Info("housekeeping goes on", "what", c.Name, "took", took)
	}
	cancel()
	time.AfterFunc(max(0, c.Interval-took), func() { runPeriodically(ctx, log, c) })
}
