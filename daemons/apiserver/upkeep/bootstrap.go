package upkeep

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/store"
)

// bootstrapNamespaces are created by the server when it starts.
var bootstrapNamespaces = []string{
	metav1.NamespaceDefault,
	metav1.NamespaceSystem,
	metav1.NamespacePublic,
	corev1.NamespaceNodeLease,
}

// bootstrap creates the objects that every cluster has. The server is not ready before that. Objects that are stored
// but cannot be read do not delay readiness: the other objects are needed too, and repairing such an object may need
// this server.
func (s *Upkeep) bootstrap(ctx context.Context) error {
	pause := 100 * time.Millisecond
	for {
		left, err := s.ensureAll(ctx)
		if err == nil && !s.IsBootstrapped() {
			close(s.bootstrapDone)
		}
		if err == nil && left == nil || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.config.Log.Warn("bootstrap", "err", err)
		} else {
			s.config.Log.Error("some of what every cluster has is left as it is stored, since that cannot be "+
				"read", "err", left)
			if !isTemporary(left) {
				return nil
			}
			pause = 5 * time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// isTemporary reports whether an object that could not be read may become readable later.
func isTemporary(err error) bool {
	unreadable := (*store.Unreadable)(nil)
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(all.Unwrap(), isTemporary)
	}
	return errors.As(err, &unreadable) && unreadable.Temporary
}

// ensureAll creates or completes the bootstrap objects. left reports the objects that were skipped because they, or
// their namespace, cannot be read.
func (s *Upkeep) ensureAll(ctx context.Context) (left, err error) {
	if err := s.config.Cache.WaitFor(ctx, 1); err != nil {
		return nil, err
	}
	var first []runtime.Object
	for _, name := range bootstrapNamespaces {
		first = append(first, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	// Namespaces come first, because the other objects are created in them.
	for _, objs := range [][]runtime.Object{first, s.config.Bootstrap} {
		readable := make([]runtime.Object, 0, len(objs))
		for _, obj := range objs {
			cause, err := s.readErrorOf(obj)
			if err != nil {
				return left, err
			}
			if cause == nil {
				readable = append(readable, obj)
			}
			left = errors.Join(left, cause)
		}
		revision, err := s.config.Writes.EnsureEach(ctx, readable)
		if err != nil {
			return left, err
		}
		if err := s.config.Cache.WaitFor(ctx, revision); err != nil { // authorizers read from the cache
			return left, err
		}
	}
	cause, err := s.ensureRange(ctx)
	return errors.Join(left, cause), err
}

// readErrorOf returns why an object, or its namespace, cannot be read. cause is nil if it can be read or does not
// exist.
func (s *Upkeep) readErrorOf(obj runtime.Object) (cause, err error) {
	resource, err := s.config.Writes.ResourceOf(obj)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	key := m.GetName()
	if m.GetNamespace() != "" {
		key = m.GetNamespace() + "/" + key
		if namespaces := s.config.Cache.Resource(schema.GroupResource{Resource: "namespaces"}); namespaces != nil {
			if cause := namespaces.ReadError(m.GetNamespace()); cause != nil {
				return cause, nil
			}
		}
	}
	if all := s.config.Cache.Resource(resource.GroupResource()); all != nil {
		if e := all.Get(key); e != nil {
			_, _ = e.Object() // decoding it marks the object as unreadable if it is
		}
		return all.ReadError(key), nil
	}
	return nil, nil
}

// CheckBootstrapped is the readiness check that fails until the bootstrap objects exist.
func (s *Upkeep) CheckBootstrapped() error {
	if !s.IsBootstrapped() {
		return errors.New("what every cluster has is not all there yet")
	}
	return nil
}

func (s *Upkeep) IsBootstrapped() bool {
	select {
	case <-s.bootstrapDone:
		return true
	default:
		return false
	}
}
