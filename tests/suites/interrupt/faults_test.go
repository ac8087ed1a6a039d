package interrupt

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// fault is a way to interrupt an apply. cause returns a function that undoes the fault after the apply has ended.
type fault struct {
	name  string
	cause func(ctx context.Context, w *world, apply *exec.Cmd) (undo func() error, err error)
}

var faults = []fault{
	{"SIGINT", sendSignal(syscall.SIGINT)},
	{"SIGKILL", sendSignal(syscall.SIGKILL)},
	{"a machine cut off", cutNetwork},
	{"a full disk", fillDisk},
}

func noUndo() error { return nil }

func sendSignal(s syscall.Signal) func(context.Context, *world, *exec.Cmd) (func() error, error) {
	return func(_ context.Context, _ *world, apply *exec.Cmd) (func() error, error) {
		return noUndo, apply.Process.Signal(s)
	}
}

// longCut is longer than a connection stays open without an answer.
const longCut = 75 * time.Second

// cutNetwork disconnects a machine from the network: for some seconds, after which a connection still works, or for
// long. It ends earlier if the apply ends.
func cutNetwork(ctx context.Context, w *world, _ *exec.Cmd) (func() error, error) {
	m := w.Lab.Machines[w.rand.IntN(len(w.Lab.Machines))]
	if err := m.Disconnect(ctx); err != nil {
		return nil, err
	}
	heal := func() error { return m.Reconnect(context.WithoutCancel(ctx)) }
	lasts := longCut
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

func fillDisk(_ context.Context, w *world, _ *exec.Cmd) (func() error, error) {
	m := w.Lab.Machines[w.rand.IntN(len(w.Lab.Machines))]
	return m.Free, m.Fill()
}
