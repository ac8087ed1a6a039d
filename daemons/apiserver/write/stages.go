package write

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/store"
)

// write is a write on its way through its stages.
type write struct {
	s *Writes
	q *request.Request

	operation      string // CREATE or UPDATE, as admission calls it
	subresource    string // the subresource whose rules apply; empty for the object itself
	dryRun         bool
	manager        string // the field manager
	isFrequent     bool   // whether the write is repeated often, so the cache may decide that it is not needed
	hasFieldOwners bool   // whether apply has set the field owners already
	sentVersion    string // resourceVersion in the body of a create request

	liveState
	nextState
	deletion *metav1.DeleteOptions // the options of a DELETE
	claims   store.Txn             // the claims that the same transaction takes and releases

	unlockQuota     func() // releases the namespace's quota lock
	cachedAdmission api.Admission
}

// liveState is the stored object that a write starts from.
type liveState struct {
	live          *cache.Entry   // the stored object; nil if there is none
	liveConverted *cache.Entry   // live, in the version of the request
	old           runtime.Object // liveConverted, decoded; must not be changed
}

// nextState is the object that a write stores.
type nextState struct {
	obj    runtime.Object // the object to store, in the version of the request
	stored runtime.Object // obj, in the stored version
	data   []byte         // stored, encoded
}

// createStages and updateStages are the stages of writes, in this order. The request has been decoded before, and the
// store is written after them.
var (
	createStages = []func(*write, context.Context) error{
		(*write).setDefaults,
		(*write).setFieldOwners,
		(*write).runMutators,
		(*write).setDefaults,
		(*write).prepareCreate,
		(*write).validate,
		(*write).runValidators,
		(*write).allocate,
		(*write).encode,
		(*write).enforceQuota,
	}
	updateStages = []func(*write, context.Context) error{
		(*write).setDefaults,
		(*write).setFieldOwners,
		(*write).runMutators,
		(*write).setDefaults,
		(*write).prepareUpdate,
		(*write).validate,
		(*write).runValidators,
		(*write).allocate,
		(*write).encode,
		(*write).enforceQuota,
	}
)

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

func (w *write) runStages(ctx context.Context, stages []func(*write, context.Context) error) error {
	for _, stage := range stages {
		if err := stage(w, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *write) setDefaults(context.Context) error {
	if w.q.Served.Default != nil {
		w.q.Served.Default(w.obj)
	}
	return nil
}

func (w *write) name() string {
	if m, err := meta.Accessor(w.obj); w.obj != nil && err == nil && m.GetName() != "" {
		return m.GetName()
	}
	return w.q.Name
}

func (w *write) encode(ctx context.Context) error {
	k := w.q.StoredKind()
	w.stored = w.obj
	if u, ok := w.obj.(*unstructured.Unstructured); ok && k != w.q.Served.Kind {
		made, err := k.Untyped.Family.Convert(ctx, []*unstructured.Unstructured{u}, k)
		if err != nil {
			return err
		}
		w.stored = made[0]
	}
	data, err := cache.Encode(k, w.stored)
	w.data = data
	return err
}

// key returns the object's key, relative to the prefix of its kind.
func (w *write) key() string {
	m, err := meta.Accessor(w.obj)
	if w.obj == nil || err != nil {
		return w.q.Key()
	}
	if w.q.Served.Namespaced {
		return m.GetNamespace() + "/" + m.GetName()
	}
	return m.GetName()
}

// insert stores a new object.
func (w *write) insert(ctx context.Context, obj runtime.Object) (*cache.Entry, error) {
	w.operation = "CREATE"
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("read the metadata of a new %s: %w", w.q.Served.GVK.Kind, err)
	}
	w.sentVersion = m.GetResourceVersion()
	generated := m.GetName() == "" && m.GetGenerateName() != ""
	repeatable := generated || w.canConflict(obj)
	// A generated name may exist already, so retry with new names.
	for attempt := 0; ; attempt++ {
		w.obj, w.claims = obj, store.Txn{}
		if repeatable {
			w.obj = obj.DeepCopyObject()
		}
		e, taken, err := w.tryCreate(ctx)
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
			return nil, apierrors.NewAlreadyExists(w.q.GroupResource(), w.name())
		case attempt >= 7:
			return nil, apierrors.NewGenerateNameConflict(w.q.GroupResource(), w.name(), 1)
		}
	}
}

// tryCreate tries once to store a new object. taken reports that an object of its name exists or, together with an
// entry, that another write got what it claims.
func (w *write) tryCreate(ctx context.Context) (e *cache.Entry, taken bool, err error) {
	defer w.releaseQuota() // even if a stage panics: other writes of the namespace wait for the lock
	if err := w.runStages(ctx, createStages); err != nil {
		return nil, false, err
	}
	if err := w.rejectResourceVersion(); err != nil {
		return nil, false, err
	}
	return w.insertNew(ctx)
}

// rejectResourceVersion rejects a new object that has a resourceVersion. It is the last check of a create request. A
// dry run skips it, because it stores nothing. Zero and non-numeric versions count as unset.
func (w *write) rejectResourceVersion() error {
	if n, err := strconv.ParseUint(w.sentVersion, 10, 64); err == nil && n != 0 && !w.dryRun {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	return nil
}

// canConflict reports whether another write may take what a creation claims besides its key. Such a creation is
// repeated, from the object that was sent.
func (w *write) canConflict(obj runtime.Object) bool {
	_, addressed := obj.(*corev1.Service)
	quotas := w.s.config.Cache.Resource(schema.GroupResource{Resource: "resourcequotas"})
	return addressed || quotas != nil && quotas.Len() > 0
}

// modify changes the object that the request names. next returns the new object for the stored one, which it must not
// change. next is called again if another write was faster. A missing object is an error, unless next accepts nil.
func (w *write) modify(
	ctx context.Context,
	next func(live runtime.Object) (runtime.Object, error),
) (*cache.Entry, error) {
	w.operation = "UPDATE"
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
	is, err := seen.Object()
	if err != nil {
		return false
	}
	wanted, err := next(is)
	return err == nil && value.Same(is, wanted)
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
	defer w.releaseQuota()
	w.live, w.liveConverted, w.old, w.claims, w.hasFieldOwners = live, nil, nil, store.Txn{}, false
	if live != nil {
		if w.liveConverted, err = live.ConvertTo(ctx, w.q.Served.Kind); err != nil {
			return nil, false, err
		}
		if w.old, err = w.liveConverted.Object(); err != nil {
			return nil, false, apierrors.NewInternalError(err)
		}
	}
	if w.obj, err = next(w.old); err != nil {
		return nil, false, err
	}
	if live != nil && w.obj == w.old {
		// nothing changes; and w.old is shared, so no stage may write to it
		return live, false, nil
	}
	if live == nil {
		w.operation = "CREATE"
		if err := w.runStages(ctx, createStages); err != nil {
			return nil, false, err
		}
		e, lost, err = w.insertNew(ctx)
		return e, lost, err
	}
	w.operation = "UPDATE"
	if err := w.runStages(ctx, updateStages); err != nil {
		return nil, false, err
	}
	return w.put(ctx)
}

// uidMismatch refuses a write whose UID is not that of the object stored under its name, or that has a UID while no
// object is stored. The message is that of upstream's store.
func (s *Writes) uidMismatch(q *request.Request, meant, is types.UID) error {
	return apierrors.NewConflict(q.GroupResource(), q.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
		s.config.Cache.Key(q.StoredKind(), q.Key()), uidConflict(meant, is)))
}

// uidConflict returns the reason of a conflict of UIDs, in upstream's words.
func uidConflict(meant, is types.UID) error {
	return errors.New(
		"Precondition failed: UID in precondition: " + string(meant) + ", UID in object meta: " + string(is),
	)
}
