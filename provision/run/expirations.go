package run

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

// Expirations returns the expiry of the certificates on every machine. A machine that does not answer does not stop it.
func (e *Engine) Expirations(ctx context.Context) ([]Expiration, error) {
	s, err := e.Store.Read()
	if err != nil || s == nil {
		return nil, err
	}
	for _, i := range e.Config.Images {
		if _, err := e.Bundle.Add(i.Reference, i.Archive); err != nil {
			return nil, err
		}
	}
	p := e.newPrepared(s)
	defer p.Close()
	p.chooseMachines()
	lists := make([][]Expiration, len(p.session.Machines))
	_ = p.session.ForEach(ctx, p.session.Machines, func(ctx context.Context, m *session.Machine) error {
		i := slices.Index(p.session.Machines, m)
		var err error
		if lists[i], err = p.expirations(ctx, m); err != nil {
			lists[i] = []Expiration{{Machine: m.Name, Problem: err.Error()}}
		}
		return nil
	})
	return slices.Concat(lists...), ctx.Err()
}

func (p *Prepared) expirations(ctx context.Context, m *session.Machine) (list []Expiration, err error) {
	if err := p.session.Connect(ctx, m); err != nil {
		return nil, err
	}
	all, err := p.stepsOf(m)
	if err != nil {
		return nil, err
	}
	var look []step.Step
	for _, s := range all {
		if issuer, ok := s.(step.Issuer); ok {
			ca, _ := issuer.CertificateRequest()
			list = append(
				list,
				Expiration{
					Machine: m.Name,
					Name:    certificate.Name(certificate.File(s)),
					CA:      strings.ReplaceAll(ca, "/", "-"),
				},
			)
			look = append(look, &step.Lifetime{Path: certificate.File(s)})
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
