package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/klauspost/compress/zstd"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/host"
)

// Store runs the program etcd of this digest, which must have been sent, with a request about the store or its
// snapshots.
func (c *Client) Store(ctx context.Context, digest string, q store.Request) (store.Answer, error) {
	a, err := c.call(ctx, request{Op: opStore, Digest: digest, Store: &q}, nil)
	if err != nil {
		return store.Answer{}, err
	}
	if a.Store == nil {
		return store.Answer{}, errors.New("no answer about the store: the agent is of another release")
	}
	return *a.Store, nil
}

// Read writes a file of the machine to w. It fails if the file is larger than size bytes.
func (c *Client) Read(ctx context.Context, path string, size int64, w io.Writer) error {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	restart, unwatch := c.watchSilence()
	defer unwatch()
	q := request{Op: opRead, Path: path}
	if err := writeJSON(c.conn, frameRequest, q); err != nil {
		return c.connectionError(ctx, err)
	}
	pieces := &dataReader{in: c.in, onFrame: restart}
	z, err := zstd.NewReader(pieces, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	_, copyErr := io.CopyN(w, z, size)
	if errors.Is(copyErr, io.EOF) { // a shorter file is not an error here; callers that know its digest find out
		copyErr = nil
	} else if n, _ := z.Read(make([]byte, 1)); copyErr == nil && n > 0 {
		_ = c.conn.Close() // do not wait for the rest
		z.Close()
		return fmt.Errorf("read %s: it is larger than the %d bytes that were said", path, size)
	}
	z.Close()
	_, _ = io.Copy(io.Discard, pieces) // so that the connection stays usable
	if _, err := c.readAnswer(q, 0, restart, nil); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("read %s: %w", path, err)
	}
	if copyErr != nil {
		return fmt.Errorf("read %s: %w", path, copyErr)
	}
	return nil
}

// runStore runs the program etcd. Its output is the answer.
func runStore(ctx context.Context, h host.Host, q request) (*store.Answer, error) {
	if !digestPattern.MatchString(q.Digest) || q.Store == nil {
		return nil, errors.New("it is not said what to do with the store, or by which program")
	}
	text, err := json.Marshal(q.Store)
	if err != nil {
		return nil, err
	}
	out, err := h.RunStore(ctx, path.Join(host.LibraryDir, q.Digest, "etcd"), string(text))
	if err != nil {
		return nil, err
	}
	var a store.Answer
	if err := json.Unmarshal(out, &a); err != nil {
		return nil, fmt.Errorf("read what %s says: %w", "etcd "+q.Store.Op, err)
	}
	return &a, nil
}

// streamFile sends a file in data frames. It sends the empty frame at the end of the file or after an error.
func streamFile(h host.Host, from string, out io.Writer) error {
	err := sendFrames(h, from, out)
	if endErr := writeFrame(out, frameData, nil); err == nil {
		err = endErr
	}
	return err
}

func sendFrames(h host.Host, from string, out io.Writer) error {
	f, err := h.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	z, err := zstd.NewWriter(&dataWriter{out}, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	_, err = io.Copy(z, f)
	if closeErr := z.Close(); err == nil {
		err = closeErr
	}
	return err
}

// dataWriter writes data frames for a dataReader.
type dataWriter struct{ out io.Writer }

func (p *dataWriter) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return len(b), writeFrame(p.out, frameData, b)
}
