package tree

import (
	"context"
	"time"
)

// The limits of the reads of a growing tree.
const (
	refreshInterval = 5 * time.Second // the least time between two reads
	maxRemembered   = 10_000          // objects that are known not to be in the tree
)

// Members are the objects of a tree that can grow, such as that of a Deployment which creates pods.
type Members struct {
	Root     *Node
	read     func(context.Context) (*Report, error)
	interval time.Duration
	readAt   time.Time
	known    map[objectName]bool // with false: the tree did not have the object when it was read
}

// objectName identifies an object, whatever its version.
type objectName struct{ kind, namespace, name string }

// NewMembers reads a tree. read is called again when an object is asked for that was not in the tree before.
func NewMembers(ctx context.Context, read func(context.Context) (*Report, error)) (*Members, error) {
	m := &Members{read: read, interval: refreshInterval, known: map[objectName]bool{}}
	return m, m.refresh(ctx)
}

// Has reports whether the tree has an object. For an object that it does not know, it reads the tree again, and waits
// if the last read is less than five seconds ago.
func (m *Members) Has(ctx context.Context, kind, namespace, name string) (bool, error) {
	object := objectName{kind, namespace, name}
	if has, ok := m.known[object]; ok {
		return has, nil
	}
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-time.After(m.interval - time.Since(m.readAt)):
	}
	if err := m.refresh(ctx); err != nil {
		return false, err
	}
	if !m.known[object] {
		m.known[object] = false
	}
	return m.known[object], nil
}

// refresh reads the tree. Objects that have left it stay members: their last events are still to come.
func (m *Members) refresh(ctx context.Context) error {
	report, err := m.read(ctx)
	m.readAt = time.Now()
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
	m.known[objectName{n.Kind, n.Namespace, n.Name}] = true
	for _, o := range n.Owns {
		m.add(o)
	}
}
