package tree

import (
	"context"
	"slices"
	"time"
)

// The limits of the reads of a growing tree.
const (
	refreshInterval = 5 * time.Second // the least time between two reads
	maxRemembered   = 10_000          // objects that are known not to be in the tree
)

// Members are the objects of a tree that can grow, such as that of a Deployment which creates pods.
type Members struct {
	Root        *Node
	read        func(context.Context) (*Report, error)
	interval    time.Duration
	refreshedAt time.Time
	known       map[Object]bool // with false: the tree did not have the object when it was read again for it
}

// Object identifies an object, whatever its version.
type Object struct{ Kind, Namespace, Name string }

// NewMembers reads a tree. read is called again for objects that were not in the tree before.
func NewMembers(ctx context.Context, read func(context.Context) (*Report, error)) (*Members, error) {
	m := &Members{read: read, interval: refreshInterval, known: map[Object]bool{}}
	return m, m.refresh(ctx)
}

// Has reports for each object whether the tree has it. If it does not know one of them, it reads the tree again, and
// waits if it did so less than five seconds ago.
func (m *Members) Has(ctx context.Context, objects []Object) ([]bool, error) {
	isUnknown := func(o Object) bool {
		_, ok := m.known[o]
		return !ok
	}
	if slices.ContainsFunc(objects, isUnknown) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(m.interval - time.Since(m.refreshedAt)):
		}
		if err := m.refresh(ctx); err != nil {
			return nil, err
		}
		m.refreshedAt = time.Now()
	}
	has := make([]bool, len(objects))
	for i, o := range objects {
		has[i] = m.known[o]
		m.known[o] = has[i]
	}
	return has, nil
}

// refresh reads the tree. Objects that have left it stay members: their last events are still to come.
func (m *Members) refresh(ctx context.Context) error {
	report, err := m.read(ctx)
	if err != nil {
		return err
	}
	m.Root = report.Root
	if len(m.known) >= maxRemembered {
		clear(m.known)
	}
	m.add(report.Root)
	return nil
}

func (m *Members) add(n *Node) {
	m.known[Object{n.Kind, n.Namespace, n.Name}] = true
	for _, o := range n.Owns {
		m.add(o)
	}
}
