// Package agent is the conversation between the tool and its agent on a machine: a
// few requests over the standard input and output of one SSH session, each with a
// whole batch of steps. How the session comes about is host/ssh's; what the steps
// do is provision/step's.
package agent

import (
	"encoding/binary"
	"encoding/json"
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
	frameRequest  = 'Q' // a request, JSON
	frameAnswer   = 'A' // its answer, JSON
	frameProgress = 'P' // a step was applied, JSON
	frameData     = 'D' // a piece of a file, zstd; an empty one ends it
)

const maxFrame = 64 << 20

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
)

type request struct {
	Op     string          `json:"op"`
	Steps  []step.Envelope `json:"steps,omitempty"`
	Digest string          `json:"digest,omitempty"`
	Name   string          `json:"name,omitempty"`
	// Private is that what is sent is nobody's but root's to read.
	Private bool           `json:"private,omitempty"`
	Store   *store.Request `json:"store,omitempty"`
	Path    string         `json:"path,omitempty"`
}

type answer struct {
	Error   string         `json:"error,omitempty"`
	Facts   *host.Facts    `json:"facts,omitempty"`
	Changes []step.Change  `json:"changes,omitempty"`
	Files   []support.File `json:"files,omitempty"`
	Remains *role.Remains  `json:"remains,omitempty"`

	Store *store.Answer `json:"store,omitempty"`
}

// Progress says that a step was applied.
type Progress struct {
	Index  int         `json:"index"`
	Change step.Change `json:"change"`
}

func writeFrame(w io.Writer, kind byte, payload []byte) error {
	head := make([]byte, 5, 5+len(payload))
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	_, err := w.Write(append(head, payload...))
	return err
}

func writeJSON(w io.Writer, kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFrame(w, kind, text)
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
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	return head[0], payload, nil
}
