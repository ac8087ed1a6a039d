package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
)

// SnapshotBefore takes a snapshot of the store before risky actions. A store that does not answer is skipped, because
// the run may be there to repair it. A store that answers and cannot take a snapshot stops the run before anything
// changes.
func (a *Access) SnapshotBefore(ctx context.Context, risks []string) error {
	members, err := a.Status(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || !HasMajority(members) {
		a.Session.Report(report.Event{Kind: report.Note, Message: "no snapshot of the store is taken: it does not " +
			"answer"})
		return nil
	}
	var errs []error
	for _, name := range DefragOrder(members) { // the leader last, because it has the most to do
		i := slices.IndexFunc(a.Session.Machines, func(m *session.Machine) bool { return m.Name == name })
		if i < 0 || !isAnswering(members, name) {
			continue
		}
		s, notes, err := a.saveSnapshot(ctx, a.Session.Machines[i], "before "+SummarizeRisks(risks))
		if err == nil {
			taken := fmt.Sprintf("snapshot of the store: %s, revision %d, %d keys", a.Path(s.Name), s.Revision, s.Keys)
			for _, text := range append(notes, taken) {
				a.Session.Report(report.Event{Kind: report.Note, Machine: a.Session.Machines[i].Address, Message: text})
			}
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("nothing is changed: a snapshot of the store has to be taken before %s, and cannot be: %w. Mend "+
		"that, or go on without one: -no-snapshot", SummarizeRisks(risks), errors.Join(errs...))
}

func isAnswering(members []store.Member, name string) bool {
	return slices.ContainsFunc(members,
		func(m store.Member) bool { return m.Name == name && m.Error == "" && !m.Learner })
}

// SummarizeRisks names the first risks, and counts the others.
func SummarizeRisks(list []string) string {
	const maximum = 3
	if len(list) <= maximum {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maximum], ", "), len(list)-maximum)
}
