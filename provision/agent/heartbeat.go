package agent

import (
	"io"
	"sync"
	"time"
)

// A machine that hangs may keep its connection: sshd still answers while the agent, or the disk below it, does not. So
// a working agent sends beats, and the client gives up an agent that sends nothing.
const (
	// beatInterval is the interval at which a working agent sends frameAlive.
	beatInterval = 5 * time.Second
	// silenceTimeout is how long a client waits for any frame before it gives up.
	silenceTimeout = 45 * time.Second
	// stepTimeout is how long a single step may take before the agent stops sending beats. It is longer than the
	// timeouts of all steps.
	stepTimeout = 30 * time.Minute
	// maxBeats is the maximum number of beats for one step: one more than stepTimeout allows, and one for the previous
	// step.
	maxBeats = int(stepTimeout/beatInterval) + 2
)

// heartbeatWriter writes an agent's answers, and sends beats while the agent is working.
type heartbeatWriter struct {
	io.Writer
	stepDone chan struct{}
	stopped  chan struct{}
	done     sync.WaitGroup
}

// startHeartbeat starts to send beats until stop is called.
func startHeartbeat(out io.Writer) *heartbeatWriter {
	a := &heartbeatWriter{Writer: out, stepDone: make(chan struct{}, 1), stopped: make(chan struct{})}
	a.done.Go(func() {
		tick, limit := time.NewTicker(beatInterval), time.NewTimer(stepTimeout)
		defer tick.Stop()
		defer limit.Stop()
		for {
			select {
			case <-a.stopped:
				return
			case <-limit.C:
				return
			case <-a.stepDone:
				limit.Reset(stepTimeout)
			case <-tick.C:
				if writeFrame(out, frameAlive, nil) != nil {
					return
				}
			}
		}
	})
	return a
}

// recordStep records that a step is complete.
func (a *heartbeatWriter) recordStep() {
	select {
	case a.stepDone <- struct{}{}:
	default:
	}
}

func (a *heartbeatWriter) stop() {
	close(a.stopped)
	a.done.Wait()
}

// watchSilence closes the connection when no frame arrives for silenceTimeout. The caller calls restart for each frame,
// and stop at the end.
func (c *Client) watchSilence() (restart, stop func()) {
	t := time.AfterFunc(silenceTimeout, func() {
		c.timedOut.Store(true)
		_ = c.conn.Close()
	})
	return func() { t.Reset(silenceTimeout) }, func() { t.Stop() }
}
