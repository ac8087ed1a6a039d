package session

import (
	"context"
	"errors"
	"fmt"

	"clusterctl/provision/agent"
	"clusterctl/provision/bundle"
	"clusterctl/provision/run/report"
	"clusterctl/provision/step"
)

// SendFiles sends the files that a machine's steps need.
func (s *Session) SendFiles(ctx context.Context, m *Machine) error {
	for i, c := range m.Changes {
		if c.Needs == "" {
			continue
		}
		f, ok := s.Files.ByDigest(c.Needs)
		if !ok {
			return fmt.Errorf("%s needs a file of digest %s that the bundle does not have", m.Steps[i].Label(), c.Needs)
		}
		name := f.Name
		if _, image := m.Steps[i].(*step.Image); image {
			name = "image.tar"
		}
		s.reportSend(m, c.Name, c.Bytes)
		if err := s.sendFile(ctx, m, f, name); err != nil {
			return err
		}
	}
	return nil
}

// SendProgram reports a program of the bundle and sends it to a machine.
func (s *Session) SendProgram(ctx context.Context, m *Machine, f bundle.File) error {
	s.reportSend(m, f.Name, f.Size)
	return s.sendFile(ctx, m, f, f.Name)
}

func (s *Session) reportSend(m *Machine, name string, bytes int64) {
	s.Report(report.Event{
		Kind:    report.Send,
		Machine: m.Address,
		Message: fmt.Sprintf("%s, %d MB", name, (bytes+999_999)/1_000_000),
	})
}

func (s *Session) sendFile(ctx context.Context, m *Machine, f bundle.File, name string) error {
	content, err := s.Files.Zstd(f)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	reader := &report.Reader{ReadCloser: content, Machine: m.Address, Name: name,
		Size: report.CompressedSize(content), Report: s.Report}
	return m.Agent.Send(ctx, f.Digest, name, reader)
}

// SendWithRetry calls SendFiles, and repeats it over a new connection if the connection is lost. Files that have
// arrived are not sent again.
func (s *Session) SendWithRetry(ctx context.Context, m *Machine) error {
	for attempt := 1; ; attempt++ {
		err := s.SendFiles(ctx, m)
		if !errors.Is(err, agent.ErrLost) || attempt == MaxAttempts || ctx.Err() != nil {
			return err
		}
		s.reportLost(m)
		if err := s.Reconnect(ctx, m, attempt); err != nil {
			return err
		}
	}
}
