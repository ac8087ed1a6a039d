package run

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"clusterctl/provision/role"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// CertificateName returns the name that users know a certificate by, as in kubeadm: apiserver, etcd-server, admin.conf.
func CertificateName(file string) string {
	file = strings.TrimPrefix(strings.TrimPrefix(file, role.Kubernetes+"/"), path.Base(role.PKI)+"/")
	return strings.ReplaceAll(strings.TrimSuffix(file, ".crt"), "/", "-")
}

// certificateFile returns the certificate file of a step, or "" if the step has none.
func certificateFile(s step.Step) string {
	switch s := s.(type) {
	case *step.Certificate:
		return s.Path + ".crt"
	case *step.Kubeconfig:
		return s.Path
	}
	return ""
}

// renewals returns the renewals that this run was asked for, and those that earlier runs did not complete.
func (p *Prepared) renewals() []state.Renewal {
	list := slices.Clone(p.State.Renewals)
	if len(p.engine.Renews) > 0 {
		list = append(list, state.Renewal{Names: p.engine.Renews, Machines: p.engine.RenewOn, Since: p.startTime})
	}
	return list
}

// renewalApplies reports whether a renewal applies to a machine.
func renewalApplies(r state.Renewal, m *machine) bool {
	return len(r.Machines) == 0 || slices.Contains(r.Machines, m.Address) || slices.Contains(r.Machines, m.Name)
}

// setRenewalTimes sets the time of the requested renewals in a machine's certificate steps, so that they issue new
// certificates. The caller holds the lock writing.
func (p *Prepared) setRenewalTimes(m *machine, steps []step.Step) {
	list := p.renewals()
	if len(list) == 0 {
		return
	}
	if p.renewed == nil {
		p.renewed = map[string]bool{}
	}
	for _, s := range steps {
		file := certificateFile(s)
		if file == "" {
			continue
		}
		name := CertificateName(file)
		p.renewed[name] = p.renewed[name] || false
		for _, r := range list {
			if !renewalApplies(r, m) || !slices.Contains(r.Names, name) && !slices.Contains(r.Names, "all") {
				continue
			}
			p.renewed[name] = true
			switch s := s.(type) {
			case *step.Certificate:
				s.Since = laterTime(s.Since, r.Since)
			case *step.Kubeconfig:
				s.Since = laterTime(s.Since, r.Since)
			}
		}
	}
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dropCompletedRenewals removes the renewals that are complete on all their machines from the state. It is called at
// the end of a run. The caller writes the state.
func (p *Prepared) dropCompletedRenewals() {
	_, missing := p.remainingCluster()
	p.State.Renewals = slices.DeleteFunc(slices.Clone(p.State.Renewals), func(r state.Renewal) bool {
		return !slices.ContainsFunc(missing, func(address string) bool {
			return renewalApplies(r, &machine{Machine: p.State.Machines[address].Machine})
		})
	})
}

// checkRenewable returns an error if a certificate to renew is on none of the machines.
func (p *Prepared) checkRenewable() error {
	if len(p.engine.Renews) == 0 {
		return nil
	}
	for _, on := range p.engine.RenewOn {
		if !slices.ContainsFunc(p.machines, func(m *machine) bool { return m.Address == on || m.Name == on }) {
			return fmt.Errorf("renew certificates on %s: there is no such machine", on)
		}
	}
	for _, name := range p.engine.Renews {
		if name != "all" && !p.renewed[name] {
			return fmt.Errorf(
				"renew %s: none of the machines has it; there are %s, or all",
				name,
				strings.Join(slices.Sorted(maps.Keys(p.renewed)), ", "),
			)
		}
	}
	return nil
}

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
	p := &Prepared{engine: e, startTime: e.now(), State: s}
	defer p.Close()
	p.chooseMachines()
	lists := make([][]Expiration, len(p.machines))
	_ = p.forEach(ctx, p.machines, func(ctx context.Context, m *machine) error {
		i := slices.Index(p.machines, m)
		var err error
		if lists[i], err = p.expirations(ctx, m); err != nil {
			lists[i] = []Expiration{{Machine: m.Name, Problem: err.Error()}}
		}
		return nil
	})
	return slices.Concat(lists...), ctx.Err()
}

func (p *Prepared) expirations(ctx context.Context, m *machine) (list []Expiration, err error) {
	if err := p.connectMachine(ctx, m); err != nil {
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
					Name:    CertificateName(certificateFile(s)),
					CA:      strings.ReplaceAll(ca, "/", "-"),
				},
			)
			look = append(look, &step.Lifetime{Path: certificateFile(s)})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	changes, err := m.agent.Check(ctx, look)
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
