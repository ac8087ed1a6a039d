package machines

import (
	"context"
	"sync"
	"time"
)

// RebootOnExit boots a machine again whenever its system has shut down by itself, as firmware does, until stop is
// called. stop returns the number of boots and the first error.
func (m *Machine) RebootOnExit(ctx context.Context) (stop func() (int, error)) {
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
			if m.nspawnPID() != 0 {
				continue
			}
			if failed = m.Start(context.WithoutCancel(ctx)); failed != nil { // a boot that has begun is not canceled
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
