package decide

import (
	"errors"
	"fmt"
	"strings"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
)

// Preflight checks whether all machines can become what they are declared to be. It reports everything about all
// machines at once, with one table for each machine that has errors.
func (p *Situation) Preflight() (warnings []string, err error) {
	var supported []plan.MachineFacts
	for _, m := range p.remainingMachines() {
		supported = append(supported, plan.MachineFacts{Address: m.Address, IP: m.IP.String(), Facts: m.Facts})
	}
	alsoErrs, alsoWarnings := plan.CompareMachines(supported)
	machines := map[string][]string{}
	var tables []error
	for _, m := range p.remainingMachines() {
		errs, warnings := plan.Preflight(p.Config, m.Machine, m.Facts, p.State, m.FactsReadAt)
		errs, warnings = append(errs, alsoErrs[m.Address]...), append(warnings, alsoWarnings[m.Address]...)
		for _, w := range warnings {
			machines[w] = append(machines[w], m.Address)
		}
		if len(errs) > 0 {
			tables = append(tables, m.Wrap(joinFindings(errs, warnings)))
		}
	}
	return plan.JoinWarnings(machines), errors.Join(tables...)
}

// remainingMachines returns the machines that were reached and stay in the cluster.
func (p *Situation) remainingMachines() (list []*session.Machine) {
	for _, m := range p.Machines {
		if m.Action != plan.Remove && m.UnreachedReason == nil && m.Agent != nil {
			list = append(list, m)
		}
	}
	return list
}

// joinFindings returns one error with all errors and warnings of one machine.
func joinFindings(errs, warnings []string) error {
	if len(errs) == 1 && len(warnings) == 0 {
		return errors.New(errs[0])
	}
	text := &strings.Builder{}
	text.WriteString("it cannot be what it is declared to be:")
	for _, e := range errs {
		fmt.Fprintf(text, "\n  error    %s", e)
	}
	for _, w := range warnings {
		fmt.Fprintf(text, "\n  warning  %s", w)
	}
	return errors.New(text.String())
}

// CheckSpace returns an error for each machine that has no room for the files to be sent to it.
func (p *Situation) CheckSpace() error {
	var errs []error
	for _, m := range p.remainingMachines() {
		var bytes int64
		for _, c := range m.Changes {
			if c.Needs != "" {
				bytes += c.Bytes
			}
		}
		if reason := plan.SpaceProblem(m.Facts, bytes); reason != "" {
			errs = append(errs, m.Wrap(errors.New(reason)))
		}
	}
	return errors.Join(errs...)
}
