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
	var known []plan.Known
	for _, m := range p.judged() {
		known = append(known, plan.Known{Address: m.Address, IP: m.IP.String(), Facts: m.facts})
	}
	alsoErrs, alsoWarnings := plan.Together(known)
	said := map[string][]string{}
	var tables []error
	for _, m := range p.judged() {
		errs, warnings := plan.Preflight(p.engine.Config, m.Machine, m.facts, p.State, m.asked)
		errs, warnings = append(errs, alsoErrs[m.Address]...), append(warnings, alsoWarnings[m.Address]...)
		for _, w := range warnings {
			said[w] = append(said[w], m.Address)
		}
		if len(errs) > 0 {
			tables = append(tables, at(m, table(errs, warnings)))
		}
	}
	p.Plan.Warnings = plan.Warnings(said)
	p.Plan.Waits = p.waiting()
	return errors.Join(tables...)
}

// judged returns the machines that were reached and stay in the cluster.
func (p *Prepared) judged() (list []*machine) {
	for _, m := range p.machines {
		if m.action != plan.Remove && m.dead == nil && m.agent != nil {
			list = append(list, m)
		}
	}
	return list
}

// table returns one error with all errors and warnings of one machine.
func table(errs, warnings []string) error {
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

// fits returns an error for each machine that has no room for the files to be sent to it.
func (p *Prepared) fits() error {
	var errs []error
	for _, m := range p.judged() {
		var bytes int64
		for _, c := range m.changes {
			if c.Needs != "" {
				bytes += c.Bytes
			}
		}
		if why := plan.Room(m.facts, bytes); why != "" {
			errs = append(errs, at(m, errors.New(why)))
		}
	}
	return errors.Join(errs...)
}
