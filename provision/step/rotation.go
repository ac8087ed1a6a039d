package step

import (
	"context"
	"fmt"
	"time"

	"clusterctl/provision/host"
)

// Rotation shows that the run will change how values are encrypted in the store: that takes all
// machines of the control plane together, so nothing is applied on one of them.
type Rotation struct {
	To string `json:"to"`
}

// Label names it.
func (s *Rotation) Label() string { return "encryption of what is stored" }

// Check always differs: where there is nothing to do there is no such step.
func (s *Rotation) Check(context.Context, host.Host, *Walk) (Change, error) {
	return Change{Action: Update, Kind: "encryption", Name: "at rest", Note: s.To}, nil
}

// Apply leaves it to the run.
func (s *Rotation) Apply(context.Context, host.Host, *Walk) error { return nil }

// Answer is that a URL answers that all is well. It is waited for.
type Answer struct {
	What string `json:"what"` // that is said by it
	URL  string `json:"url"`
	host.Client
}

// answerTimeout is long: a large store is written anew meanwhile.
const answerTimeout = 15 * time.Minute

// Label says what is waited for.
func (s *Answer) Label() string { return s.What }

// Check asks.
func (s *Answer) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return ill("answer", s.URL, h.Answers(ctx, s.URL, s.Client)), nil
}

// Apply waits.
func (s *Answer) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := until(ctx, func() error { return h.Answers(ctx, s.URL, s.Client) }); err != nil {
		return fmt.Errorf("wait until %s (journalctl -u kube-apiserver says what is in the way): %w", s.What, err)
	}
	return nil
}
