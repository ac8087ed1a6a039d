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

// Client asks an agent. It is for one goroutine at a time. A context that ends closes the
// connection: the agent then stops between two steps.
type Client struct {
	conn io.ReadWriteCloser
	in   *bufio.Reader

	turn *Turn // whose what is applied is

	silent atomic.Bool // it was closed since nothing came for too long
}

// NewClient speaks over a connection.
func NewClient(conn io.ReadWriteCloser) *Client {
	return &Client{conn: conn, in: bufio.NewReaderSize(conn, readAhead)}
}

// Take says whose turn it is to apply.
func (c *Client) Take(t Turn) { c.turn = &t }

// Close ends the conversation.
func (c *Client) Close() error { return c.conn.Close() }

// Facts asks what the machine is.
func (c *Client) Facts(ctx context.Context) (host.Facts, error) {
	a, err := c.ask(ctx, request{Op: opFacts}, nil)
	if err != nil {
		return host.Facts{}, fmt.Errorf("look at the machine: %w", err)
	}
	if a.Facts == nil {
		return host.Facts{}, errors.New("look at the machine: no facts in the answer")
	}
	return *a.Facts, nil
}

// Collect asks for the machine's part of a support bundle.
func (c *Client) Collect(ctx context.Context) ([]support.File, error) {
	a, err := c.ask(ctx, request{Op: opGather}, nil)
	if err != nil {
		return nil, fmt.Errorf("gather what the machine says: %w", err)
	}
	return a.Files, nil
}

// Trace has the machine watch for a packet, and send it when it is to; begun is called when it watches.
func (c *Client) Trace(ctx context.Context, q host.Trace, begun func()) (host.Traced, error) {
	a, err := c.askOnce(ctx, request{Op: opTrace, Trace: &q}, begun)
	if err != nil {
		return host.Traced{}, fmt.Errorf("watch for a packet: %w", err)
	}
	if a.Traced == nil || len(a.Traced.Sightings) > host.MostSightings {
		return host.Traced{}, errors.New("watch for a packet: no answer about it: the agent is of another release")
	}
	return *a.Traced, nil
}

// Look asks what the machine's files say of the cluster that it serves.
func (c *Client) Look(ctx context.Context) (role.Remains, error) {
	a, err := c.ask(ctx, request{Op: opLook}, nil)
	if err != nil {
		return role.Remains{}, fmt.Errorf("look what remains of the cluster there: %w", err)
	}
	if a.Remains == nil {
		return role.Remains{}, errors.New("look what remains of the cluster there: nothing in the answer")
	}
	return *a.Remains, nil
}

// Check has all steps checked.
func (c *Client) Check(ctx context.Context, steps []step.Step) ([]step.Change, error) {
	a, err := c.askOf(ctx, request{Op: opCheck}, steps, nil)
	if err != nil {
		return nil, err
	}
	if len(a.Changes) != len(steps) {
		return nil, fmt.Errorf("%d changes for %d steps: the agent is of another release", len(a.Changes), len(steps))
	}
	return a.Changes, nil
}

// Apply has all steps applied that differ; progress is told of each.
func (c *Client) Apply(ctx context.Context, steps []step.Step, progress func(Progress)) error {
	_, err := c.askOf(ctx, request{Op: opApply, Turn: c.turn}, steps, progress)
	return err
}

// Send sends a file, whose content is compressed with zstd.
func (c *Client) Send(ctx context.Context, digest, name string, compressed io.Reader) error {
	return c.send(ctx, request{Op: opSend, Digest: digest, Name: name}, compressed)
}

// SendPrivate sends a file that nobody but root may read there.
func (c *Client) SendPrivate(ctx context.Context, digest, name string, compressed io.Reader) error {
	return c.send(ctx, request{Op: opSend, Digest: digest, Name: name, Private: true}, compressed)
}

// frames are for pieces of files, which go to many machines at the same time.
var frames = sync.Pool{New: func() any { return new([headLength + 256<<10]byte) }}

func (c *Client) send(ctx context.Context, q request, compressed io.Reader) error {
	name := q.Name
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	heard, unwatch := c.watch()
	defer unwatch()
	if err := writeJSON(c.conn, frameRequest, q); err != nil {
		return fmt.Errorf("send %s: %w", name, c.lost(ctx, err))
	}
	piece := frames.Get().(*[headLength + 256<<10]byte)
	defer frames.Put(piece)
	for {
		n, err := io.ReadFull(compressed, piece[headLength:])
		if n > 0 {
			if err := writeWhole(c.conn, frameData, piece[:headLength+n]); err != nil {
				return fmt.Errorf("send %s: %w", name, c.lost(ctx, err))
			}
			heard()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	if err := writeFrame(c.conn, frameData, nil); err != nil {
		return fmt.Errorf("send %s: %w", name, c.lost(ctx, err))
	}
	if _, err := c.wait(q, 0, heard, nil); err != nil {
		return fmt.Errorf("send %s: %w", name, err)
	}
	return nil
}

func (c *Client) ask(ctx context.Context, q request, progress func(Progress)) (answer, error) {
	return c.askOf(ctx, q, nil, progress)
}

// askOnce asks something of one step, of which the agent tells when it has begun with it.
func (c *Client) askOnce(ctx context.Context, q request, begun func()) (answer, error) {
	frame, err := framed(q, nil)
	if err != nil {
		return answer{}, err
	}
	return c.exchange(ctx, q, frame, 1, func(Progress) { begun() })
}

func (c *Client) askOf(ctx context.Context, q request, steps []step.Step, progress func(Progress)) (answer, error) {
	frame, err := framed(q, steps)
	if err != nil {
		return answer{}, err
	}
	return c.exchange(ctx, q, frame, len(steps), progress)
}

func (c *Client) exchange(
	ctx context.Context,
	q request,
	frame []byte,
	steps int,
	progress func(Progress),
) (answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	heard, unwatch := c.watch()
	defer unwatch()
	if err := writeWhole(c.conn, frameRequest, frame); err != nil {
		return answer{}, c.lost(ctx, err)
	}
	a, err := c.wait(q, steps, heard, progress)
	if err != nil && ctx.Err() != nil {
		return a, ctx.Err()
	}
	return a, err
}

// wait reads up to the answer to q, which is about so many steps. heard is called whenever something has come. An agent
// tells of each step once, and no longer than stuck that it is at work on one: one that goes on is none of ours, and
// would never end.
func (c *Client) wait(q request, steps int, heard func(), progress func(Progress)) (answer, error) {
	told, beats := 0, 0
	for {
		kind, payload, err := readFrame(c.in)
		if err != nil {
			return answer{}, c.lost(context.Background(), err)
		}
		heard()
		switch kind {
		case frameAlive:
			if beats++; beats > mostBeats {
				return answer{}, fmt.Errorf("%w: it has been at one step for %s", ErrHangs, stuck)
			}
		case frameProgress:
			if told++; told > steps {
				return answer{}, fmt.Errorf(
					"it tells of more than the %d steps that it was given: the other side does not speak the agent's "+
						"protocol",
					steps,
				)
			}
			beats = 0
			var p Progress
			if err := understand(payload, &p); err != nil {
				return answer{}, fmt.Errorf("read the agent's progress: %w", err)
			}
			plain(reflect.ValueOf(&p))
			if progress != nil {
				progress(p)
			}
		case frameAnswer:
			var a answer
			if err := understand(payload, &a); err != nil {
				return answer{}, fmt.Errorf("read the agent's answer: %w", err)
			}
			if err := a.tame(q); err != nil && a.Error == "" {
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

// ErrLost is that the connection to the agent ended; what was asked can be asked again.
var ErrLost = errors.New("the connection to the machine was lost")

// ErrHangs is that the connection is there and the agent says nothing. It is not asked again: that would hang as well.
var ErrHangs = errors.New("it hangs")

func (c *Client) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if c.silent.Load() {
		return fmt.Errorf(
			"%w: nothing has come from it for %s. See to its disks and its memory (journalctl -k there), then apply "+
				"again",
			ErrHangs,
			silence,
		)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
