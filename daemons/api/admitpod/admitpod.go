// Package admitpod is how the kubelet asks its machine's network daemon whether the network policies of a pod hold,
// before anything of the pod runs: one line of JSON over a socket, and one in answer. Whether they hold is the network
// daemon's business, what becomes of a pod without them the kubelet's.
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

// Pod is what is asked about: a pod whose sandbox has addresses and whose containers have not been started.
type Pod struct {
	UID       string   `json:"uid"` // that of the kubelet, also where the API's mirror of the pod has another
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	IPs       []string `json:"ips"`
}

// Answer is what the network daemon says: that the policies hold, or why not.
type Answer struct {
	Holds bool   `json:"holds,omitempty"`
	Error string `json:"error,omitempty"`
}

const (
	// Wait is how long the network daemon tries before it answers that the policies do not hold.
	Wait = 10 * time.Second
	// MaxLine bounds questions and answers, bytes.
	MaxLine = 64 << 10
)

// Admit returns when the policies of a pod hold. It may be repeated, and has to be when the pod gets other addresses.
func Admit(ctx context.Context, socket string, p Pod) error {
	answer, err := ask(ctx, socket, p)
	if err == nil && !answer.Holds {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return fmt.Errorf("ask for the network policies of the pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func ask(ctx context.Context, socket string, p Pod) (a Answer, err error) {
	// The daemon's answer takes as long as it may; one that does not come at all is given up.
	ctx, cancel := context.WithTimeout(ctx, Wait+2*time.Second)
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
