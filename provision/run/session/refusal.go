package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

// RefusedError is the error that lists the objects that the API refuses.
type RefusedError struct {
	List    []Refusal
	Waiting int // objects that depend on the refused ones and were not applied
}

// Refusal is one object that the API refuses.
type Refusal struct {
	Address       string
	Source        config.Source
	Kind          string
	Name          string // namespace/name
	IsUnknownKind bool   // the API does not know the kind
	Err           error
}

// Error returns one line for each refused object.
func (r RefusedError) Error() string {
	lines := []string{
		fmt.Sprintf("the API refuses %s; apply continues with the others:", plan.Number(len(r.List), "object")),
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

// Collect adds the refusals in err and returns nil, or returns err if it is another error.
func (r *RefusedError) Collect(err error) error {
	var more RefusedError
	if !errors.As(err, &more) {
		return err
	}
	r.Add(more)
	return nil
}

// Add adds the refusals of more, each object once. An object can be refused twice, because the objects that the
// cluster's own daemons need are also applied together with the nodes' labels.
func (r *RefusedError) Add(more RefusedError) {
	for _, one := range more.List {
		if !slices.ContainsFunc(r.List,
			func(o Refusal) bool { return o.Kind == one.Kind && o.Name == one.Name && o.Address == one.Address }) {
			r.List = append(r.List, one)
		}
	}
	r.Waiting += more.Waiting
}

// HasOnlyUnknownKinds reports whether all refused objects are of kinds that the API does not know.
func (r RefusedError) HasOnlyUnknownKinds() bool {
	return !slices.ContainsFunc(r.List, func(one Refusal) bool { return !one.IsUnknownKind })
}
