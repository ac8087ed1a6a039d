// Package agent is the conversation between the tool and its agent on a machine: a
// few requests over the standard input and output of one SSH session, each with a
// whole batch of steps. How the session comes about is host/ssh's; what the steps
// do is provision/step's.
package agent

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
	"clusterctl/provision/support"
)

// Kinds of frames: one byte, four bytes of length, the payload.
const (
	frameRequest  = 'Q' // a request, JSON, and behind it the steps that it is about
	frameAnswer   = 'A' // its answer, JSON
	frameProgress = 'P' // a step was applied, JSON
	frameData     = 'D' // a piece of a file, zstd; an empty one ends it
	frameAlive    = 'L' // the agent is at work
)

// maxFrame is how long a frame may be, and maxPromise how much of one has its memory before it has come.
const (
	maxFrame   = 64 << 20
	maxPromise = 1 << 20
)

// readAhead is how much is read before it is wanted. What is larger goes straight to where it is wanted.
const readAhead = 4 << 10

// Operations of requests.
const (
	opFacts  = "facts"
	opSend   = "send"
	opCheck  = "check"
	opApply  = "apply"
	opGather = "gather"
	opLook   = "look"
	opStore  = "store"
	opRead   = "read"
	opTrace  = "trace"
)

type request struct {
	Op     string `json:"op"`
	Digest string `json:"digest,omitempty"`
	Name   string `json:"name,omitempty"`
	// Private is that what is sent is nobody's but root's to read.
	Private bool           `json:"private,omitempty"`
	Store   *store.Request `json:"store,omitempty"`
	Path    string         `json:"path,omitempty"`
	Trace   *host.Trace    `json:"trace,omitempty"`
	Turn    *Turn          `json:"turn,omitempty"` // whose turn what is applied belongs to
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

// Progress says that a step was applied.
type Progress struct {
	Index  int         `json:"index"`
	Change step.Change `json:"change"`
}

// headLength is how much of a frame comes before its payload.
const headLength = 5

func writeFrame(w io.Writer, kind byte, payload []byte) error {
	return writeWhole(w, kind, append(make([]byte, headLength, headLength+len(payload)), payload...))
}

// writeWhole writes a frame whose payload lies behind room for its head, in one piece: pieces become packets of SSH.
func writeWhole(w io.Writer, kind byte, frame []byte) error {
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(frame)-headLength))
	_, err := w.Write(frame)
	return err
}

func writeJSON(w io.Writer, kind byte, v any) error {
	frame, err := framed(v, nil)
	if err != nil {
		return err
	}
	return writeWhole(w, kind, frame)
}

// framed is what writeWhole writes.
func framed(v any, steps []step.Step) ([]byte, error) {
	var frame bytes.Buffer
	frame.Write(make([]byte, headLength))
	to := json.NewEncoder(&frame)
	if err := to.Encode(v); err != nil {
		return nil, err
	}
	if err := step.Pack(to, steps); err != nil {
		return nil, err
	}
	return frame.Bytes(), nil
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
