// Package agent implements the protocol between clusterctl and its agent on a machine. Requests run over the standard
// input and output of one SSH session, each with a whole batch of steps. Package ssh starts the session, and package
// step implements the steps.
package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
	"clusterctl/provision/support"
)

// Kinds of frames. A frame is one byte of kind, four bytes of length, and the payload.
const (
	frameRequest  = 'Q' // a request in JSON, followed by its steps
	frameAnswer   = 'A' // the answer in JSON
	frameProgress = 'P' // a step was applied; JSON
	frameData     = 'D' // a piece of a file, zstd; an empty frame ends the file
	frameAlive    = 'L' // the agent is working
)

// maxFrame is the maximum length of a payload in bytes. For longer payloads than maxPromise, memory is allocated as the
// data arrives.
const (
	maxFrame   = 64 << 20
	maxPromise = 1 << 20
)

// readAhead is the size of the read buffer in bytes. Larger reads bypass the buffer.
const readAhead = 4 << 10

// Operations of requests.
const (
	opFacts   = "facts"
	opSend    = "send"
	opCheck   = "check"
	opApply   = "apply"
	opGather  = "gather"
	opRemains = "look"
	opStore   = "store"
	opRead    = "read"
	opTrace   = "trace"
)

type request struct {
	Op     string `json:"op"`
	Digest string `json:"digest,omitempty"`
	Name   string `json:"name,omitempty"`
	// Private makes the sent file readable by root only.
	Private bool           `json:"private,omitempty"`
	Store   *store.Request `json:"store,omitempty"`
	Path    string         `json:"path,omitempty"`
	Trace   *host.Trace    `json:"trace,omitempty"`
	Turn    *Turn          `json:"turn,omitempty"` // the turn in which steps are applied
}

type answer struct {
	Error   string         `json:"error,omitempty"`
	Facts   *host.Facts    `json:"facts,omitempty"`
	Changes []step.Change  `json:"changes,omitempty"`
	Files   []support.File `json:"files,omitempty"`
	Remains *role.Remains  `json:"remains,omitempty"`

	Store  *store.Answer `json:"store,omitempty"`
	Traced *host.Traced  `json:"traced,omitempty"`
}

// Progress reports that a step was applied.
type Progress struct {
	Index  int         `json:"index"`
	Change step.Change `json:"change"`
}

// headLength is the length of a frame's kind and length fields in bytes.
const headLength = 5

func writeFrame(w io.Writer, kind byte, payload []byte) error {
	return writeFrameAtOnce(w, kind, append(make([]byte, headLength, headLength+len(payload)), payload...))
}

// writeFrameAtOnce writes a frame with one call of Write, because each call becomes a packet of SSH. The first
// headLength bytes of frame are reserved for the header.
func writeFrameAtOnce(w io.Writer, kind byte, frame []byte) error {
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-headLength))
	_, err := w.Write(frame)
	return err
}

func writeJSON(w io.Writer, kind byte, v any) error {
	return withFrame(v, nil, func(frame []byte) error { return writeFrameAtOnce(w, kind, frame) })
}

// encodeBuffers holds buffers for encoded frames. A machine's steps take tens of kilobytes, and are sent several times.
var encodeBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKeptBuffer is the capacity in bytes of the largest buffer that encodeBuffers keeps.
const maxKeptBuffer = 1 << 20

// withFrame calls use with a frame for writeFrameAtOnce, without its header filled in. use must not keep the frame.
func withFrame(v any, steps []step.Step, use func(frame []byte) error) error {
	frame := encodeBuffers.Get().(*bytes.Buffer)
	defer func() {
		if frame.Cap() <= maxKeptBuffer {
			encodeBuffers.Put(frame)
		}
	}()
	frame.Reset()
	frame.Write(make([]byte, headLength))
	to := json.NewEncoder(frame)
	if err := to.Encode(v); err != nil {
		return err
	}
	if err := step.Pack(to, steps); err != nil {
		return err
	}
	return use(frame.Bytes())
}

func readFrame(r io.Reader) (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes: the other side does not speak the agent's protocol", n)
	}
	if n <= maxPromise {
		payload := make([]byte, n)
		if _, err := io.ReadFull(r, payload); err != nil {
			return 0, nil, err
		}
		return head[0], payload, nil
	}
	var payload bytes.Buffer
	if _, err := io.CopyN(&payload, r, int64(n)); errors.Is(err, io.EOF) {
		return 0, nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return 0, nil, err
	}
	return head[0], payload.Bytes(), nil
}
