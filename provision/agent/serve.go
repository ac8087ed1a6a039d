package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"sync"

	"github.com/klauspost/compress/zstd"

	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
	"clusterctl/provision/support"
)

// Serve answers requests until the client closes the connection.
func Serve(ctx context.Context, h host.Host, r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, readAhead)
	out := &lockedWriter{w: w}
	for {
		kind, payload, err := readFrame(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		var q request
		if kind != frameRequest {
			return fmt.Errorf("frame of kind %q where a request was due", kind)
		}
		decoder := json.NewDecoder(bytes.NewReader(payload))
		if err := decoder.Decode(&q); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		alive := startHeartbeat(out)
		a, err := handle(ctx, h, q, decoder, in, alive)
		alive.stop()
		if err != nil {
			a.Error = err.Error()
		}
		if err := writeJSON(out, frameAnswer, a); err != nil {
			return fmt.Errorf("answer %s: %w", q.Op, err)
		}
	}
}

func handle(
	ctx context.Context,
	h host.Host,
	q request,
	decoder *json.Decoder,
	in io.Reader,
	out *heartbeatWriter,
) (answer, error) {
	switch q.Op {
	case opFacts:
		last, err := readRunRecord(h) // read first, so that a run that starts meanwhile is noticed
		if err != nil {
			return answer{}, err
		}
		f, err := h.Facts(ctx)
		f.LastRun = last.Run
		return answer{Facts: &f}, err
	case opGather:
		return answer{Files: support.Collect(ctx, h)}, nil
	case opRemains:
		remains, err := role.ReadRemains(ctx, h)
		return answer{Remains: &remains}, err
	case opSend:
		return answer{}, receiveFile(h, q, in)
	case opStore:
		a, err := runStore(ctx, h, q)
		return answer{Store: a}, err
	case opRead:
		return answer{}, streamFile(h, q.Path, out)
	case opTrace:
		if q.Trace == nil {
			return answer{}, errors.New("nothing to trace in the request")
		}
		t, err := h.Trace(ctx, *q.Trace, func() { _ = writeJSON(out, frameProgress, Progress{}) })
		return answer{Traced: &t}, err
	case opCheck, opApply:
		steps, err := step.Unpack(decoder)
		if err != nil {
			return answer{}, err
		}
		if q.Op == opCheck {
			changes, err := step.Check(ctx, h, steps)
			return answer{Changes: changes}, err
		}
		end, err := startTurn(ctx, h, q.Turn)
		if err != nil {
			return answer{}, err
		}
		defer end()
		return answer{}, step.Apply(ctx, h, steps, func(i int, c step.Change) {
			out.recordStep()
			_ = writeJSON(out, frameProgress, Progress{i, c})
		})
	}
	return answer{}, fmt.Errorf("unknown request %q", q.Op)
}

var (
	digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	namePattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
)

// receiveFile receives a file. It reads all its frames even after an error, so that the connection stays usable.
func receiveFile(h host.Host, q request, in io.Reader) error {
	pieces := &dataReader{in: in}
	defer func() { _, _ = io.Copy(io.Discard, pieces) }()
	if !digestPattern.MatchString(q.Digest) || !namePattern.MatchString(q.Name) {
		return fmt.Errorf("%q is not a name for a file of digest %q", q.Name, q.Digest)
	}
	z, err := zstd.NewReader(pieces, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	sum := sha256.New()
	dir := path.Join(host.LibraryDir, q.Digest)
	temporary := path.Join(dir, ".incoming")
	mode := fs.FileMode(0o755)
	if q.Private {
		mode = 0o600
	}
	if err := h.WriteFile(temporary, io.TeeReader(z, sum), mode, 0, 0); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != q.Digest {
		_ = h.RemoveAll(dir)
		return fmt.Errorf("%s arrived damaged: its digest is %s, not %s", q.Name, got, q.Digest)
	}
	return h.Rename(temporary, path.Join(dir, q.Name))
}

// dataReader reads the content of the data frames up to the empty one.
type dataReader struct {
	in       io.Reader
	onFrame  func() // called for each frame that has arrived
	buffered []byte
	done     bool
}

func (p *dataReader) Read(b []byte) (int, error) {
	for len(p.buffered) == 0 {
		if p.done {
			return 0, io.EOF
		}
		kind, payload, err := readFrame(p.in)
		if err != nil {
			p.done = true
			return 0, err
		}
		if p.onFrame != nil {
			p.onFrame()
		}
		if kind == frameAlive {
			continue
		}
		if kind != frameData || len(payload) == 0 {
			p.done = true
			continue
		}
		p.buffered = payload
	}
	n := copy(b, p.buffered)
	p.buffered = p.buffered[n:]
	return n, nil
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
