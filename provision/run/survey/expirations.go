package survey

import (
	"context"
	"slices"
	"strings"
	"time"

	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// Expiration is the expiry of a certificate on a machine.
type Expiration struct {
	Machine string    `json:"machine"` // name of the machine
	Name    string    `json:"name"`
	CA      string    `json:"ca"`
	Until   time.Time `json:"until,omitzero"`
	Problem string    `json:"problem,omitempty"` // why the expiry is unknown
}

// Expirations returns the expiry of the certificates on every machine of the session. A machine that does not answer
// does not stop it.
func Expirations(ctx context.Context, s *session.Session) ([]Expiration, error) {
	lists := make([][]Expiration, len(s.Machines))
	_ = s.ForEach(ctx, s.Machines, func(ctx context.Context, m *session.Machine) error {
		i := slices.Index(s.Machines, m)
		var err error
		if lists[i], err = expirations(ctx, s, m); err != nil {
			lists[i] = []Expiration{{Machine: m.Name, Problem: err.Error()}}
		}
		return nil
	})
	return slices.Concat(lists...), ctx.Err()
}

func expirations(ctx context.Context, s *session.Session, m *session.Machine) (list []Expiration, err error) {
	if err := s.Connect(ctx, m); err != nil {
		return nil, err
	}
	all, err := s.Steps(m)
	if err != nil {
		return nil, err
	}
	var look []step.Step
	for _, one := range all {
		if issuer, ok := one.(step.Issuer); ok {
			ca, _ := issuer.CertificateRequest()
			list = append(
				list,
				Expiration{
					Machine: m.Name,
					Name:    certificate.Name(certificate.File(one)),
					CA:      strings.ReplaceAll(ca, "/", "-"),
				},
			)
			look = append(look, &step.Lifetime{Path: certificate.File(one)})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, session.CheckTimeout)
	defer cancel()
	changes, err := m.Agent.Check(ctx, look)
	if err != nil {
		return nil, err
	}
	for i, c := range changes {
		if list[i].Until, err = time.Parse(time.RFC3339, c.Note); err != nil {
			list[i].Problem = c.Note
		}
	}
	return list, nil
}
