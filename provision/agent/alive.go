package agent

import (
	"io"
	"sync"
	"time"
)

// A machine that hangs may keep its connection: sshd still answers while the agent, or the disk under it, does not. So
// an agent that is at work says so, and who waits for it gives it up when nothing comes.
const (
	// beat is how often the agent says that it is at work.
	beat = 5 * time.Second
	// silence is after how much of it an agent is given up.
	silence = 45 * time.Second
	// stuck is how long a single step may take before the agent no longer says that it is at work: more than any step
	// allows itself.
	stuck = 30 * time.Minute
	// mostBeats is how often an agent says so of one step; one more than there can be, and one for the step before.
	mostBeats = int(stuck/beat) + 2
)

// alive is where an agent writes while it is at work.
type alive struct {
	io.Writer
	moved chan struct{}
	ended chan struct{}
	done  sync.WaitGroup
}

// beating says that the agent is at work until stop is called.
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

// progressed is that a step has come to its end.
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

// watch closes the connection when nothing is heard for too long. heard is to be called whenever something is, stop at
// the end.
func (c *Client) watch() (heard, stop func()) {
	t := time.AfterFunc(silence, func() {
		c.silent.Store(true)
		_ = c.conn.Close()
	})
	return func() { t.Reset(silence) }, func() { t.Stop() }
}
