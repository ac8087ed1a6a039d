package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
	"clusterctl/provision/support"
)

// Client sends requests to an agent. It is not safe for concurrent use. When a request's context ends, the connection
// is closed, and the agent stops after the current step.
type Client struct {
	conn io.ReadWriteCloser
	in   *bufio.Reader

	turn *Turn // the turn that Apply sends; nil means none

	timedOut atomic.Bool // the connection was closed after too long a silence
}

// NewClient returns a client that uses conn.
func NewClient(conn io.ReadWriteCloser) *Client {
	return &Client{conn: conn, in: bufio.NewReaderSize(conn, readAhead)}
}

// SetTurn sets the turn for later calls of Apply.
func (c *Client) SetTurn(t Turn) { c.turn = &t }

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Facts returns the facts of the machine.
func (c *Client) Facts(ctx context.Context) (host.Facts, error) {
	a, err := c.call(ctx, request{Op: opFacts}, nil)
	if err != nil {
		return host.Facts{}, fmt.Errorf("read the machine: %w", err)
	}
	if a.Facts == nil {
		return host.Facts{}, errors.New("read the machine: no facts in the answer")
	}
	return *a.Facts, nil
}

// Collect returns the machine's part of a support bundle.
func (c *Client) Collect(ctx context.Context) ([]support.File, error) {
	a, err := c.call(ctx, request{Op: opGather}, nil)
	if err != nil {
		return nil, fmt.Errorf("gather what the machine says: %w", err)
	}
	return a.Files, nil
}

// Trace makes the machine watch for a packet, and send it if q says so. It calls started when the machine watches.
func (c *Client) Trace(ctx context.Context, q host.Trace, started func()) (host.Traced, error) {
	a, err := c.callOneStep(ctx, request{Op: opTrace, Trace: &q}, started)
	if err != nil {
		return host.Traced{}, fmt.Errorf("watch for a packet: %w", err)
	}
	if a.Traced == nil || len(a.Traced.Sightings) > host.MaxSightings {
		return host.Traced{}, errors.New("watch for a packet: no answer about it: the agent is of another release")
	}
	return *a.Traced, nil
}

// Remains returns what the machine's files contain of the cluster that it serves.
func (c *Client) Remains(ctx context.Context) (role.Remains, error) {
	a, err := c.call(ctx, request{Op: opRemains}, nil)
	if err != nil {
		return role.Remains{}, fmt.Errorf("look what remains of the cluster there: %w", err)
	}
	if a.Remains == nil {
		return role.Remains{}, errors.New("look what remains of the cluster there: nothing in the answer")
	}
	return *a.Remains, nil
}

// Check checks all steps and returns a change for each.
func (c *Client) Check(ctx context.Context, steps []step.Step) ([]step.Change, error) {
	a, err := c.callWithSteps(ctx, request{Op: opCheck}, steps, nil)
	if err != nil {
		return nil, err
	}
	if len(a.Changes) != len(steps) {
		return nil, fmt.Errorf("%d changes for %d steps: the agent is of another release", len(a.Changes), len(steps))
	}
	return a.Changes, nil
}

// Apply applies all steps that differ, and calls progress for each.
func (c *Client) Apply(ctx context.Context, steps []step.Step, progress func(Progress)) error {
	_, err := c.callWithSteps(ctx, request{Op: opApply, Turn: c.turn}, steps, progress)
	return err
}

// Send sends a file. Its content is compressed with zstd.
func (c *Client) Send(ctx context.Context, digest, name string, compressed io.Reader) error {
	return c.send(ctx, request{Op: opSend, Digest: digest, Name: name}, compressed)
}

// SendPrivate sends a file that only root may read on the machine.
func (c *Client) SendPrivate(ctx context.Context, digest, name string, compressed io.Reader) error {
	return c.send(ctx, request{Op: opSend, Digest: digest, Name: name, Private: true}, compressed)
}

// frameBuffers holds buffers for pieces of files, because files are sent to many machines in parallel.
var frameBuffers = sync.Pool{New: func() any { return new([headLength + 256<<10]byte) }}

func (c *Client) send(ctx context.Context, q request, compressed io.Reader) error {
	name := q.Name
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	restart, unwatch := c.watchSilence()
	defer unwatch()
	if err := writeJSON(c.conn, frameRequest, q); err != nil {
		return fmt.Errorf("send %s: %w", name, c.connectionError(ctx, err))
	}
	piece := frameBuffers.Get().(*[headLength + 256<<10]byte)
	defer frameBuffers.Put(piece)
	for {
		n, err := io.ReadFull(compressed, piece[headLength:])
		if n > 0 {
			if err := writeFrameAtOnce(c.conn, frameData, piece[:headLength+n]); err != nil {
				return fmt.Errorf("send %s: %w", name, c.connectionError(ctx, err))
			}
			restart()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	if err := writeFrame(c.conn, frameData, nil); err != nil {
		return fmt.Errorf("send %s: %w", name, c.connectionError(ctx, err))
	}
	if _, err := c.readAnswer(q, 0, restart, nil); err != nil {
		return fmt.Errorf("send %s: %w", name, err)
	}
	return nil
}

func (c *Client) call(ctx context.Context, q request, progress func(Progress)) (answer, error) {
	return c.callWithSteps(ctx, q, nil, progress)
}

// callOneStep sends a request that counts as one step. It calls started when the agent reports that step.
func (c *Client) callOneStep(ctx context.Context, q request, started func()) (answer, error) {
	return c.exchange(ctx, q, nil, 1, func(Progress) { started() })
}

func (c *Client) callWithSteps(ctx context.Context, q request, steps []step.Step,
	progress func(Progress)) (answer, error) {
	return c.exchange(ctx, q, steps, len(steps), progress)
}

// exchange sends a request with its steps, and reads up to its answer. The agent may report maxReports steps.
func (c *Client) exchange(
	ctx context.Context,
	q request,
	steps []step.Step,
	maxReports int,
	progress func(Progress),
) (answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	restart, unwatch := c.watchSilence()
	defer unwatch()
	err := withFrame(q, steps, func(frame []byte) error {
		if err := writeFrameAtOnce(c.conn, frameRequest, frame); err != nil {
			return c.connectionError(ctx, err)
		}
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	a, err := c.readAnswer(q, maxReports, restart, progress)
	if err != nil && ctx.Err() != nil {
		return a, ctx.Err()
	}
	return a, err
}

// readAnswer reads frames up to the answer to q. It calls received for each frame. An agent reports each of its steps
// once, and sends beats for one step no longer than stepTimeout. Another program could send more and would never end,
// so that is an error.
func (c *Client) readAnswer(q request, steps int, received func(), progress func(Progress)) (answer, error) {
	reports, beats := 0, 0
	for {
		kind, payload, err := readFrame(c.in)
		if err != nil {
			return answer{}, c.connectionError(context.Background(), err)
		}
		received()
		switch kind {
		case frameAlive:
			if beats++; beats > maxBeats {
				return answer{}, fmt.Errorf("%w: it has been at one step for %s", ErrUnresponsive, stepTimeout)
			}
		case frameProgress:
			if reports++; reports > steps {
				return answer{}, fmt.Errorf("it reports on more than the %d steps that it was given: the other side "+
					"does not speak the agent's protocol", steps)
			}
			beats = 0
			var p Progress
			if err := decodeFrame(payload, &p); err != nil {
				return answer{}, fmt.Errorf("read the agent's progress: %w", err)
			}
			stripControls(reflect.ValueOf(&p))
			if progress != nil {
				progress(p)
			}
		case frameAnswer:
			var a answer
			if err := decodeFrame(payload, &a); err != nil {
				return answer{}, fmt.Errorf("read the agent's answer: %w", err)
			}
			if err := a.sanitize(q); err != nil && a.Error == "" {
				return answer{}, fmt.Errorf("read the agent's answer: %w", err)
			}
			if a.Error != "" {
				return a, errors.New(a.Error)
			}
			return a, nil
		default:
			return answer{}, fmt.Errorf("frame of kind %q from the agent", kind)
		}
	}
}

// ErrLost reports that the connection to the agent ended. The request may be repeated.
var ErrLost = errors.New("the connection to the machine was lost")

// ErrUnresponsive reports that the connection exists but the agent is silent. The request is not repeated, because it
// would hang again.
var ErrUnresponsive = errors.New("it hangs")

func (c *Client) connectionError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.timedOut.Load() {
		return fmt.Errorf("%w: nothing has come from it for %s. See to its disks and its memory (journalctl -k "+
			"there), then apply again", ErrUnresponsive, silenceTimeout)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
