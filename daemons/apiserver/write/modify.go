package write

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds/value"
)

// write is a write that a client or the server itself requests. It is carried out by an attempt, and by another one if
// another write was faster.
type write struct {
	s *Writes
	q *request.Request

	subresource string                // the subresource whose rules apply; empty for the object itself
	dryRun      bool                  // whether nothing is stored
	manager     string                // the field manager
	isFrequent  bool                  // whether it is repeated often, so the cache may decide that it is not needed
	isApply     bool                  // whether it is a server-side apply, which sets the field owners itself
	deletion    *metav1.DeleteOptions // the options of a DELETE

	attempt attempt // the current one
}

// partSubresource marks subresources whose handler copies a part of the sent object to the stored one.
const partSubresource = "part"

// newWrite parses the options of a write.
func (s *Writes) newWrite(q *request.Request) (*write, error) {
	w := &write{s: s, q: q, manager: q.Query.Get("fieldManager")}
	if err := q.WriteOptions(); err != nil {
		return nil, err
	}
	w.dryRun = len(q.Query["dryRun"]) > 0
	if w.manager == "" {
		w.manager, _, _ = strings.Cut(q.HTTP.UserAgent(), "/")
		if w.manager = w.manager[:min(len(w.manager), 128)]; w.manager == "" {
			w.manager = "unknown"
		}
	}
	switch q.Subresource {
	case "status", "approval":
		w.subresource = q.Subresource
		if q.Subresource == "approval" {
			w.subresource = "status"
		}
	case "binding", "ephemeralcontainers", "resize", "finalize":
		w.subresource = partSubresource
	}
	return w, nil
}

// insert stores a new object.
func (w *write) insert(ctx context.Context, obj runtime.Object) (*cache.Entry, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("read the metadata of a new %s: %w", w.q.Served.GVK.Kind, err)
	}
	sentVersion := m.GetResourceVersion()
	generated := m.GetName() == "" && m.GetGenerateName() != ""
	repeatable := generated || canConflict(w.s.config.Cache, obj)
	// A generated name may exist already, so retry with new names.
	for attempt := 0; ; attempt++ {
		a := w.begin("CREATE")
		a.next.obj = obj
		if repeatable {
			a.next.obj = obj.DeepCopyObject()
		}
		e, taken, err := a.create(ctx, sentVersion)
		switch {
		case err != nil:
			return nil, err
		case !taken:
			return e, nil
		case e != nil: // another write got a claimed address first
			if attempt >= 16 || !repeatable { // a quota was created a moment ago
				return nil, apierrors.NewServerTimeout(w.q.GroupResource(), "create", 1)
			}
			continue
		case !generated:
			return nil, apierrors.NewAlreadyExists(w.q.GroupResource(), a.name())
		case attempt >= 7:
			return nil, apierrors.NewGenerateNameConflict(w.q.GroupResource(), a.name(), 1)
		}
	}
}

// canConflict reports whether another write may take what a creation claims besides its key. Such a creation is
// repeated, from the object that was sent.
func canConflict(c *cache.Cache, obj runtime.Object) bool {
	_, addressed := obj.(*corev1.Service)
	quotas := c.Resource(schema.GroupResource{Resource: "resourcequotas"})
	return addressed || quotas != nil && quotas.Len() > 0
}

// modify changes the object that the request names. next returns the new object for the stored one, which it must not
// change. next is called again if another write was faster. A missing object is an error, unless next accepts nil.
func (w *write) modify(
	ctx context.Context,
	next func(live runtime.Object) (runtime.Object, error),
) (*cache.Entry, error) {
	key := w.q.Key()
	live, fresh := w.q.Cache.Get(key), false
	if w.dryRun {
		live = nil // a dry run reads the store, because no guard detects that the cache is behind
	}
	if w.isFrequent && w.isNoOp(ctx, live, next) {
		return live, nil
	}
	for ctx.Err() == nil {
		if live == nil && !fresh {
			var err error
			if live, err = w.s.readStored(ctx, w.q, key); err != nil {
				return nil, err
			}
			fresh = true
		}
		e, lost, err := w.tryModify(ctx, live, next)
		switch {
		case err == nil && !lost:
			if e.Revision != revisionOf(live) || fresh || w.dryRun || w.isFrequent {
				return e, nil
			}
			// Nothing to change. That is right if the cached object is still the stored one.
		case err != nil && (fresh || errors.As(err, new(*uncertainError))):
			return nil, err
		}
		// A refusal or a needless write is checked again against the store.
		again, readErr := w.s.readStored(ctx, w.q, key)
		if readErr != nil {
			return nil, readErr
		}
		if !lost && revisionOf(again) == revisionOf(live) {
			return e, err
		}
		live, fresh = again, true
	}
	return nil, ctx.Err()
}

// isNoOp reports whether next would leave the stored object unchanged.
func (w *write) isNoOp(
	ctx context.Context,
	live *cache.Entry,
	next func(live runtime.Object) (runtime.Object, error),
) bool {
	if live == nil || live.Stale || w.q.Cache.ReadError(live.Key) != nil {
		return false
	}
	seen, err := live.ConvertTo(ctx, w.q.Served.Kind)
	if err != nil {
		return false
	}
	object, err := seen.Object()
	if err != nil {
		return false
	}
	wanted, err := next(object)
	return err == nil && value.Same(object, wanted)
}

func revisionOf(e *cache.Entry) int64 {
	if e == nil {
		return 0
	}
	return e.Revision
}

// tryModify tries once, from one stored state. lost reports that the store holds another state.
func (w *write) tryModify(
	ctx context.Context,
	live *cache.Entry,
	next func(runtime.Object) (runtime.Object, error),
) (e *cache.Entry, lost bool, err error) {
	a := w.begin("UPDATE")
	if live == nil {
		a.origin.operation = "CREATE"
	} else if err := a.load(ctx, live); err != nil {
		return nil, false, err
	}
	if a.next.obj, err = next(a.live.obj); err != nil {
		return nil, false, err
	}
	switch {
	case live == nil:
		return a.create(ctx, "")
	case a.next.obj == a.live.obj:
		return live, false, nil // nothing changes; and the object is shared, so no stage may write to it
	}
	return a.update(ctx)
}

// uidMismatch refuses a write whose UID is not that of the object stored under its name, or that has a UID while no
// object is stored. The message is that of upstream's store.
func (s *Writes) uidMismatch(q *request.Request, meant, uID types.UID) error {
	return apierrors.NewConflict(q.GroupResource(), q.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
		s.config.Cache.Key(q.StoredKind(), q.Key()), uidConflict(meant, uID)))
}

// uidConflict returns the reason of a conflict of UIDs, in upstream's words.
func uidConflict(meant, uID types.UID) error {
	return errors.New(
		"Precondition failed: UID in precondition: " + string(meant) + ", UID in object meta: " + string(uID),
	)
}
