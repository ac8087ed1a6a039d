package agent

import (
	"io"
	"sync"
	"time"
)

// A machine that hangs may keep its connection: sshd still answers while the agent, or the disk below it, does not. So
// a working agent sends beats, and the client gives up an agent that sends nothing.
const (
	// beat is the interval at which a working agent sends frameAlive.
	beat = 5 * time.Second
	// silence is how long a client waits for any frame before it gives up.
	silence = 45 * time.Second
	// stuck is how long a single step may take before the agent stops sending beats. It is longer than the timeouts of
	// all steps.
	stuck = 30 * time.Minute
	// mostBeats is the maximum number of beats for one step: one more than stuck allows, and one for the previous step.
	mostBeats = int(stuck/beat) + 2
)

// alive writes an agent's answers, and sends beats while the agent is working.
type alive struct {
	io.Writer
	moved chan struct{}
	ended chan struct{}
	done  sync.WaitGroup
}

// beating starts to send beats until stop is called.
func beating(out io.Writer) *alive {
	a := &alive{Writer: out, moved: make(chan struct{}, 1), ended: make(chan struct{})}
	a.done.Go(func() {
		tick, limit := time.NewTicker(beat), time.NewTimer(stuck)
		defer tick.Stop()
		defer limit.Stop()
		for {
			select {
			case <-a.ended:
				return
			case <-limit.C:
				return
			case <-a.moved:
				limit.Reset(stuck)
			case <-tick.C:
				if writeFrame(out, frameAlive, nil) != nil {
					return
				}
			}
		}
	})
	return a
}

// progressed records that a step is complete.
func (a *alive) progressed() {
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

func (a *alive) stop() {
	close(a.ended)
	a.done.Wait()
}

// watch closes the connection when no frame arrives for silence. The caller calls heard for each frame, and stop at the
// end.
func (c *Client) watch() (heard, stop func()) {
	t := time.AfterFunc(silence, func() {
		c.silent.Store(true)
		_ = c.conn.Close()
	})
	return func() { t.Reset(silence) }, func() { t.Stop() }
}
