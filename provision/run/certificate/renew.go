package certificate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Renewals sets when certificates are renewed early. It is not safe for concurrent use.
type Renewals struct {
	// Requested is the renewal that this run was asked for. It has no names if there is none.
	Requested state.Renewal

	found map[string]bool // by name of certificate: whether it is to be renewed
}

// All returns the renewals that this run was asked for, and those in s that earlier runs did not complete.
func (r *Renewals) All(s *state.State) []state.Renewal {
	list := slices.Clone(s.Renewals)
	if len(r.Requested.Names) > 0 {
		list = append(list, r.Requested)
	}
	return list
}

// SetTimes sets the time of the renewals in a machine's certificate steps, so that they issue new certificates.
func (r *Renewals) SetTimes(s *state.State, m config.Machine, steps []step.Step) {
	list := r.All(s)
	if len(list) == 0 {
		return
	}
	if r.found == nil {
		r.found = map[string]bool{}
	}
	for _, one := range steps {
		file := File(one)
		if file == "" {
			continue
		}
		name := Name(file)
		r.found[name] = r.found[name] || false
		for _, renewal := range list {
			if !applies(renewal, m) || !slices.Contains(renewal.Names, name) && !slices.Contains(renewal.Names, "all") {
				continue
			}
			r.found[name] = true
			switch one := one.(type) {
			case *step.Certificate:
				one.Since = laterTime(one.Since, renewal.Since)
			case *step.Kubeconfig:
				one.Since = laterTime(one.Since, renewal.Since)
			}
		}
	}
}

// applies reports whether a renewal applies to a machine.
func applies(r state.Renewal, m config.Machine) bool {
	return len(r.Machines) == 0 || slices.Contains(r.Machines, m.Address) || slices.Contains(r.Machines, m.Name)
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Check returns an error if a requested certificate is on none of the machines, whose steps have passed SetTimes.
func (r *Renewals) Check(machines []*session.Machine) error {
	if len(r.Requested.Names) == 0 {
		return nil
	}
	for _, on := range r.Requested.Machines {
		if !slices.ContainsFunc(machines, func(m *session.Machine) bool { return m.Address == on || m.Name == on }) {
			return fmt.Errorf("renew certificates on %s: there is no such machine", on)
		}
	}
	for _, name := range r.Requested.Names {
		if name != "all" && !r.found[name] {
			return fmt.Errorf("renew %s: none of the machines has it; there are %s, or all", name,
				strings.Join(slices.Sorted(maps.Keys(r.found)), ", "))
		}
	}
	return nil
}

// IncompleteRenewals returns the renewals of s that concern one of the missing machines, given by their addresses. The
// others are complete at the end of a run.
func IncompleteRenewals(s *state.State, missing []string) []state.Renewal {
	return slices.DeleteFunc(slices.Clone(s.Renewals), func(r state.Renewal) bool {
		return !slices.ContainsFunc(missing, func(address string) bool {
			return applies(r, s.Machines[address].Machine)
		})
	})
}
