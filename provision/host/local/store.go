package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/host"
)

// RunStore runs the program etcd with a request.
func (h *Host) RunStore(ctx context.Context, program, request string) ([]byte, error) {
	c := exec.CommandContext(ctx, program, "store", request)
	c.Env = append(os.Environ(), "LC_ALL=C")
	if text, err := os.ReadFile(host.ProxyFile); err == nil { // the object store of snapshots may be behind the proxy
		c.Env = append(c.Env, parseVariables(string(text))...)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the proxy of the machine: %w", err)
	}
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed) && complaint.Len() > 0:
		return nil, errors.New(strings.TrimSpace(tail(complaint.String(), 5)))
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	return out, nil
}

// lastSnapshot returns the outcome of the last attempt to take a snapshot, or nil if there was none. An outcome that
// cannot be read counts as a failure.
func lastSnapshot() *store.Outcome {
	text, err := os.ReadFile(store.LastSnapshot)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var o store.Outcome
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		o.Error = "how the last one went cannot be read: " + err.Error()
	}
	return &o
}
