// Package survey reads from all machines what commands show, and changes nothing on them.
package survey

import (
	"context"
	"net"
	"sync"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Status is the status of one machine.
type Status struct {
	Address string        `json:"address"`
	Name    string        `json:"name"`
	Roles   []string      `json:"roles"`
	Facts   host.Facts    `json:"facts"`
	Changes []step.Change `json:"differs,omitempty"` // differences from the declaration
	Foreign []string      `json:"foreign,omitempty"` // files with an effect that clusterctl did not write
	Error   string        `json:"error,omitempty"`   // why the status is unknown
	NoAPI   string        `json:"noAPI,omitempty"`   // why it reaches no API server
}

// Overview is the status of all machines of a cluster.
type Overview struct {
	State    *state.State // nil when there is no cluster yet
	Machines []Status
	Members  string // how etcd's own list of members differs from the machines
}

// Statuses connects to the machines of the session and returns their statuses. A machine that does not answer does not
// stop it. control are the machines whose API servers the others must reach.
func Statuses(ctx context.Context, s *session.Session, control []config.Machine) []Status {
	list := make([]Status, len(s.Machines))
	index := map[*session.Machine]int{}
	for i, m := range s.Machines {
		index[m] = i
		list[i] = Status{Address: m.Address, Name: m.Name, Roles: m.Roles}
	}
	_ = s.ForEach(ctx, s.Machines, func(ctx context.Context, m *session.Machine) error {
		own := &list[index[m]]
		err := s.Connect(ctx, m)
		if err == nil {
			own.Facts = m.Facts
			err = s.Check(ctx, m)
		}
		if err != nil {
			own.Error = err.Error()
			return nil
		}
		for _, c := range m.Changes {
			if c.Kind == step.ForeignFiles {
				own.Foreign = append(own.Foreign, c.Name+": "+c.Note)
			}
			if c.Action != "" {
				own.Changes = append(own.Changes, c)
			}
		}
		own.NoAPI = apiProblem(ctx, m, control)
		return nil
	})
	return list
}

// apiProblem returns why a machine reaches no API server of the machines control, or "" if it reaches one.
func apiProblem(ctx context.Context, m *session.Machine, control []config.Machine) string {
	way := &step.APIReach{Client: host.Client{CA: role.PKI + "/ca.crt"}}
	for _, c := range control {
		way.URLs = append(way.URLs, "https://"+net.JoinHostPort(c.IP.String(), "6443")+"/livez")
	}
	changes, err := m.Agent.Check(ctx, []step.Step{way})
	switch {
	case err != nil:
		return err.Error()
	case len(changes) == 1:
		return changes[0].Note
	}
	return ""
}

// WithoutAPI returns which of the machines reach no API server of the machines control: the reasons, by the machine's
// address. Their nodes get no updates and become not ready.
func WithoutAPI(
	ctx context.Context,
	s *session.Session,
	machines []*session.Machine,
	control []config.Machine,
) map[string]string {
	var mu sync.Mutex
	found := map[string]string{}
	_ = s.ForEach(ctx, machines, func(ctx context.Context, m *session.Machine) error {
		if reason := apiProblem(ctx, m, control); reason != "" {
			mu.Lock()
			found[m.Address] = reason
			mu.Unlock()
		}
		return nil
	})
	return found
}
