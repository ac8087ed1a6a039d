// Package admitpod lets the kubelet ask its machine's network daemon whether the network policies of a pod are in
// effect, before anything of the pod runs. Both messages are one line of JSON over a socket. The network daemon applies
// the policies. The kubelet decides what to do with a pod without them.
package admitpod

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Pod is the request: a pod whose sandbox has addresses and whose containers have not been started.
type Pod struct {
	UID       string   `json:"uid"` // the kubelet's UID of the pod, even if the mirror pod has another
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	IPs       []string `json:"ips"`
}

// Answer is the network daemon's response: that the policies are in effect, or why not.
type Answer struct {
	InEffect bool   `json:"holds,omitempty"`
	Error    string `json:"error,omitempty"`
}

const (
	// Timeout is how long the network daemon tries before it answers that the policies are not in effect.
	Timeout = 10 * time.Second
	// MaxLine is the maximum length of requests and responses in bytes.
	MaxLine = 64 << 10
)

// Admit returns nil once the policies of a pod are in effect. It may be repeated, and must be if the pod's addresses
// change.
func Admit(ctx context.Context, socket string, p Pod) error {
	answer, err := sendRequest(ctx, socket, p)
	if err == nil && !answer.InEffect {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return fmt.Errorf("ask for the network policies of the pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func sendRequest(ctx context.Context, socket string, p Pod) (a Answer, err error) {
	// The daemon answers within Timeout. Allow a little more, then give up.
	ctx, cancel := context.WithTimeout(ctx, Timeout+2*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return a, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	line, err := json.Marshal(p)
	if err != nil {
		return a, err
	}
	if _, err := c.Write(append(line, '\n')); err != nil {
		return a, errors.Join(err, ctx.Err())
	}
	got, err := bufio.NewReader(io.LimitReader(c, MaxLine)).ReadBytes('\n')
	if err != nil {
		return a, errors.Join(fmt.Errorf("no answer: %w", err), ctx.Err())
	}
	return a, json.Unmarshal(got, &a)
}
