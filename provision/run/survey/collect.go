package survey

import (
	"context"
	"time"

	"clusterctl/provision/run/session"
	"clusterctl/provision/support"
)

// Collected is what one machine contributes to a support bundle.
type Collected struct {
	Name  string
	Files []support.File
	Error string // why it could not be collected
}

const collectTimeout = 3 * time.Minute

// Collect collects from all machines of the session at once. It continues when a machine does not answer.
func Collect(ctx context.Context, s *session.Session) ([]Collected, error) {
	list := make([]Collected, len(s.Machines))
	index := map[*session.Machine]int{}
	for i, m := range s.Machines {
		index[m], list[i].Name = i, m.Name
	}
	err := s.ForEach(ctx, s.Machines, func(ctx context.Context, m *session.Machine) error {
		own := &list[index[m]]
		err := s.Connect(ctx, m)
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, collectTimeout)
			defer cancel()
			own.Files, err = m.Agent.Collect(ctx)
		}
		if err != nil {
			own.Error = err.Error()
		}
		return nil
	})
	return list, err
}
