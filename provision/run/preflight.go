package run

import (
	"errors"
	"fmt"
	"strings"

	"clusterctl/provision/plan"
)

// preflight checks whether all machines can become what they are declared to be. It reports everything about all
// machines at once, with one table for each machine that has errors.
func (p *Prepared) preflight() error {
	var known []plan.MachineFacts
	for _, m := range p.remainingMachines() {
		known = append(known, plan.MachineFacts{Address: m.Address, IP: m.IP.String(), Facts: m.facts})
	}
	alsoErrs, alsoWarnings := plan.CompareMachines(known)
	said := map[string][]string{}
	var tables []error
	for _, m := range p.remainingMachines() {
		errs, warnings := plan.Preflight(p.engine.Config, m.Machine, m.facts, p.State, m.factsReadAt)
		errs, warnings = append(errs, alsoErrs[m.Address]...), append(warnings, alsoWarnings[m.Address]...)
		for _, w := range warnings {
			said[w] = append(said[w], m.Address)
		}
		if len(errs) > 0 {
			tables = append(tables, machineError(m, joinFindings(errs, warnings)))
		}
	}
	p.Plan.Warnings = plan.JoinWarnings(said)
	p.Plan.WaitingChanges = p.windowLines()
	return errors.Join(tables...)
}

// remainingMachines returns the machines that were reached and stay in the cluster.
func (p *Prepared) remainingMachines() (list []*machine) {
	for _, m := range p.machines {
		if m.action != plan.Remove && m.unreachedReason == nil && m.agent != nil {
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

// checkSpace returns an error for each machine that has no room for the files to be sent to it.
func (p *Prepared) checkSpace() error {
	var errs []error
	for _, m := range p.remainingMachines() {
		var bytes int64
		for _, c := range m.changes {
			if c.Needs != "" {
				bytes += c.Bytes
			}
		}
		if why := plan.SpaceProblem(m.facts, bytes); why != "" {
			errs = append(errs, machineError(m, errors.New(why)))
		}
	}
	return errors.Join(errs...)
}
