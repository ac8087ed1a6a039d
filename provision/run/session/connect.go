package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
)

// Limits of requests to agents that only read.
const (
	FactsTimeout = 30 * time.Second
	CheckTimeout = 2 * time.Minute
)

// Connect connects to a machine and reads its facts.
func (s *Session) Connect(ctx context.Context, m *Machine) error {
	a, err := s.Dial(ctx, m.Machine)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, FactsTimeout)
	defer cancel()
	before := s.Now()
	m.Facts, err = a.Facts(ctx)
	// The clock was read between the two: the time on the network is not an error of the clock.
	if after := s.Now(); m.Facts.Clock.Before(before) {
		m.FactsReadAt = before
	} else if m.FactsReadAt = m.Facts.Clock; m.FactsReadAt.After(after) {
		m.FactsReadAt = after
	}
	if err != nil {
		_ = a.Close()
		return hangError(ctx, FactsTimeout, err)
	}
	if m.turn == nil { // a reconnection keeps LastSeen, so that it cannot override a run that came in between
		m.turn = &agent.Turn{Run: s.Run, Operator: s.Operator, LastSeen: m.Facts.LastRun, Boot: m.Facts.Boot}
	}
	if s.Run != "" {
		a.SetTurn(*m.turn)
	}
	m.Agent = a
	if b, ok := a.(programSender); ok && m.SentBytes == 0 {
		m.SentBytes = b.SentBytes()
	}
	s.Report(report.Event{Kind: report.Connect, Machine: m.Address, Message: plan.Describe(m.Facts)})
	return nil
}

// ResetTurn makes the next connection take the turn on a machine on which the record of the last run was deleted.
func (s *Session) ResetTurn(m *Machine) { m.turn = &agent.Turn{Run: s.Run, Operator: s.Operator} }

// Check computes the steps of a machine by the present state, and checks them.
func (s *Session) Check(ctx context.Context, m *Machine) error {
	var err error
	m.HasCertificates = false
	if m.Steps, err = s.Steps(m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()
	m.Changes, err = m.Agent.Check(ctx, m.Steps)
	return hangError(ctx, CheckTimeout, err)
}

// hangError returns an error that says that a machine hangs, if ctx's deadline has passed; otherwise it returns err.
func hangError(ctx context.Context, limit time.Duration, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("it hangs: it has not answered for %s: %w", limit, err)
	}
	return err
}

// MaxAttempts is how often work on a machine is tried when the connection is lost.
const MaxAttempts = 3

// Reconnect opens a new connection after a pause that grows with each attempt, and checks the machine's steps again.
func (s *Session) Reconnect(ctx context.Context, m *Machine, attempt int) error {
	_ = m.Agent.Close()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(attempt) * time.Second):
	}
	if err := s.Connect(ctx, m); err != nil {
		return err
	}
	return s.Check(ctx, m)
}

// ReconnectAndResend does the same as Reconnect, and sends the files that are still missing.
func (s *Session) ReconnectAndResend(ctx context.Context, m *Machine, attempt int) error {
	if err := s.Reconnect(ctx, m, attempt); err != nil {
		return err
	}
	return s.SendWithRetry(ctx, m)
}

// reportLost reports that a connection was lost and is opened again.
func (s *Session) reportLost(m *Machine) {
	s.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: "the connection was lost, connecting again"})
}
