package step

import (
	"context"
	"fmt"
	"time"

	"clusterctl/provision/host"
)

// ShowRotation shows in the plan that the run will change how values are encrypted in the store. The run does that on
// all control-plane machines together, so this step applies nothing.
type ShowRotation struct {
	To string `json:"to"`
}

// Label returns a fixed text.
func (s *ShowRotation) Label() string { return "encryption of what is stored" }

// Check always reports a change, because the step exists only if there is something to do.
func (s *ShowRotation) Check(context.Context, host.Host, *Walk) (Change, error) {
	return Change{Action: Update, Kind: "encryption", Name: "at rest", Note: s.To}, nil
}

// Apply does nothing.
func (s *ShowRotation) Apply(context.Context, host.Host, *Walk) error { return nil }

// AwaitAnswer waits until a URL answers with success.
type AwaitAnswer struct {
	Meaning string `json:"what"` // what the answer means
	URL     string `json:"url"`
	host.Client
}

// answerTimeout is long, because all values of a large store may be written again meanwhile.
const answerTimeout = 15 * time.Minute

// Label returns what is awaited.
func (s *AwaitAnswer) Label() string { return s.Meaning }

// Check asks the URL once.
func (s *AwaitAnswer) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return failedChange("answer", s.URL, h.CheckURL(ctx, s.URL, s.Client)), nil
}

// Apply waits for the answer.
func (s *AwaitAnswer) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := retryUntil(ctx, func() error { return h.CheckURL(ctx, s.URL, s.Client) }); err != nil {
		return fmt.Errorf("wait until %s (journalctl -u kube-apiserver says what is in the way): %w", s.Meaning, err)
	}
	return nil
}
