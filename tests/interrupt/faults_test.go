package interrupt

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// fault is a way to interrupt an apply. happen returns a function that undoes the fault after the apply has ended.
type fault struct {
	name   string
	happen func(ctx context.Context, w *world, apply *exec.Cmd) (undo func() error, err error)
}

var faults = []fault{
	{"SIGINT", signal(syscall.SIGINT)},
	{"SIGKILL", signal(syscall.SIGKILL)},
	{"a machine cut off", cut},
	{"a full disk", fill},
}

func nothing() error { return nil }

func signal(s syscall.Signal) func(context.Context, *world, *exec.Cmd) (func() error, error) {
	return func(_ context.Context, _ *world, apply *exec.Cmd) (func() error, error) {
		return nothing, apply.Process.Signal(s)
	}
}

// long is longer than a connection stays open without an answer.
const long = 75 * time.Second

// cut disconnects a machine from the network: for some seconds, after which a connection still works, or for long. It
// ends earlier if the apply ends.
func cut(ctx context.Context, w *world, _ *exec.Cmd) (func() error, error) {
	m := w.Lab.Machines[w.rand.IntN(len(w.Lab.Machines))]
	if err := m.Cut(ctx); err != nil {
		return nil, err
	}
	heal := func() error { return m.Heal(context.WithoutCancel(ctx)) }
	lasts := long
	if w.rand.IntN(2) == 0 {
		lasts = time.Duration(w.rand.IntN(15000)) * time.Millisecond
	}
	healed := make(chan error, 1)
	timer := time.AfterFunc(lasts, func() { healed <- heal() })
	return func() error {
		if timer.Stop() {
			return heal()
		}
		return <-healed
	}, nil
}

func fill(_ context.Context, w *world, _ *exec.Cmd) (func() error, error) {
	m := w.Lab.Machines[w.rand.IntN(len(w.Lab.Machines))]
	return m.Free, m.Fill()
}
