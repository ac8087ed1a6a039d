package run

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/step"
)

// Refused are the objects that the API does not take.
type Refused struct {
	List    []Refusal
	Waiting int // objects that depend on them, and were not begun
}

// Refusal is one object that the API does not take.
type Refusal struct {
	Address string
	Source  config.Source
	Kind    string
	Name    string // namespace/name
	Unknown bool   // the API does not know the kind
	Err     error
}

// Error lists them all.
func (r Refused) Error() string {
	lines := []string{
		fmt.Sprintf("the API refuses %s; apply goes on with the others:", plan.Number(len(r.List), "object")),
	}
	for _, one := range r.List {
		where := one.Address
		if one.Source.File != "" {
			where = fmt.Sprintf("%s (%s:%d)", one.Address, one.Source.File, one.Source.Line)
		}
		lines = append(lines, fmt.Sprintf("%s: %s %s: %v", where, one.Kind, one.Name, one.Err))
	}
	if r.Waiting > 0 {
		lines = append(lines, plan.Number(r.Waiting, "object")+" that come after them by depends_on are not begun")
	}
	return strings.Join(lines, "\n")
}

// take adds the refusals that an error is, and returns it when it is another.
func (r *Refused) take(err error) error {
	var more Refused
	if !errors.As(err, &more) {
		return err
	}
	r.add(more)
	return nil
}

// add adds refusals to these, each object once: what the cluster's own daemons need is applied with the nodes' labels
// as well.
func (r *Refused) add(more Refused) {
	for _, one := range more.List {
		if !slices.ContainsFunc(
			r.List,
			func(o Refusal) bool { return o.Kind == one.Kind && o.Name == one.Name && o.Address == one.Address },
		) {
			r.List = append(r.List, one)
		}
	}
	r.Waiting += more.Waiting
}

// unknown reports whether all of them are of kinds that the API does not know.
func (r Refused) unknown() bool {
	return !slices.ContainsFunc(r.List, func(one Refusal) bool { return !one.Unknown })
}

// upgrading reports whether the plan brings another API server, which may know more kinds
// than the one that answers now.
func (p *Prepared) upgrading() bool {
	return slices.ContainsFunc(p.machines, func(m *machine) bool {
		return m.action == plan.Change && m.Has(config.RoleControlPlane) &&
			slices.ContainsFunc(m.changes, func(c step.Change) bool {
				return c.Kind == "link" && path.Base(c.Name) == "kube-apiserver"
			})
	})
}

// ErrInterrupted is that whoever started a run has stopped it.
var ErrInterrupted = errors.New("interrupted; run it again to go on from there")

// interrupted reports whether a run was stopped, rather than being out of time.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
