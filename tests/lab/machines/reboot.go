package machines

import (
	"context"
	"sync"
	"time"
)

// Reboots boots a machine again whenever its system has gone down by itself, as firmware does, until stop is called;
// that returns how often, and what went wrong.
func (m *Machine) Reboots(ctx context.Context) (stop func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	boots, failed := 0, error(nil)
	done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			if m.nspawn() != 0 {
				continue
			}
			if failed = m.Start(context.WithoutCancel(ctx)); failed != nil { // once begun it boots to the end
				return
			}
			boots++
		}
	})
	return func() (int, error) {
		cancel()
		done.Wait()
		return boots, failed
	}
}
