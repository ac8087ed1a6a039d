package write

import (
	"context"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/store"
)

// attempt is one attempt to carry out a write. Its stages complete the object to store.
type attempt struct {
	w *write
	s *Writes
	q *request.Request

	live   liveState
	next   nextState
	claims store.Txn // the claims that the same transaction takes and releases

	unlockQuota     func() // releases the namespace's quota lock
	origin          origin
	versions        servedVersions
	cachedAdmission api.Admission
}

// liveState is the stored object that an attempt starts from. It is empty if there is none.
type liveState struct {
	entry     *cache.Entry
	converted *cache.Entry   // entry, in the version of the request
	obj       runtime.Object // converted, decoded; must not be changed
}

// nextState is the object that an attempt stores.
type nextState struct {
	obj    runtime.Object // the object to store, in the version of the request
	stored runtime.Object // obj, in the stored version
	data   []byte         // stored, encoded
}

// createStages and updateStages are the stages of an attempt, in this order. The request has been decoded before, and
// the store is written after them.
var (
	createStages = []func(*attempt, context.Context) error{
		(*attempt).setDefaults,
		(*attempt).setFieldOwners,
		(*attempt).runMutators,
		(*attempt).setDefaults,
		(*attempt).prepareCreate,
		(*attempt).validate,
		(*attempt).runValidators,
		(*attempt).allocate,
		(*attempt).encode,
		(*attempt).enforceQuota,
	}
	updateStages = []func(*attempt, context.Context) error{
		(*attempt).setDefaults,
		(*attempt).setFieldOwners,
		(*attempt).runMutators,
		(*attempt).setDefaults,
		(*attempt).prepareUpdate,
		(*attempt).validate,
		(*attempt).runValidators,
		(*attempt).allocate,
		(*attempt).encode,
		(*attempt).enforceQuota,
	}
)

// begin returns the next attempt of the write. It takes the place of the one before.
func (w *write) begin(operation string) *attempt {
	w.attempt = attempt{
		w: w, s: w.s, q: w.q,
		origin:   origin{q: w.q, operation: operation, dryRun: w.dryRun, deletion: w.deletion},
		versions: servedVersions{w.q.Served},
	}
	return &w.attempt
}

// load sets the stored object that the attempt starts from.
func (a *attempt) load(ctx context.Context, entry *cache.Entry) (err error) {
	a.live.entry = entry
	if a.live.converted, err = entry.ConvertTo(ctx, a.q.Served.Kind); err != nil {
		return err
	}
	if a.live.obj, err = a.live.converted.Object(); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// create runs the stages for a new object, and stores it. sentVersion is the resource version that the client sent with
// it. taken reports that an object of its name exists or, together with an entry, that another write got what it
// claims.
func (a *attempt) create(ctx context.Context, sentVersion string) (e *cache.Entry, taken bool, err error) {
	defer a.releaseQuota() // even if a stage panics: other writes of the namespace wait for the lock
	if err := a.runStages(ctx, createStages); err != nil {
		return nil, false, err
	}
	if err := rejectResourceVersion(sentVersion, a.w.dryRun); err != nil {
		return nil, false, err
	}
	return a.insertNew(ctx)
}

// update runs the stages for a changed object, and stores it. lost reports that the store holds another state than the
// attempt started from.
func (a *attempt) update(ctx context.Context) (e *cache.Entry, lost bool, err error) {
	defer a.releaseQuota()
	if err := a.runStages(ctx, updateStages); err != nil {
		return nil, false, err
	}
	return a.put(ctx)
}

func (a *attempt) runStages(ctx context.Context, stages []func(*attempt, context.Context) error) error {
	for _, stage := range stages {
		if err := stage(a, ctx); err != nil {
			return err
		}
	}
	return nil
}

// rejectResourceVersion rejects a new object that has a resourceVersion. It is the last check of a create request. A
// dry run skips it, because it stores nothing. Zero and non-numeric versions count as unset.
func rejectResourceVersion(sent string, dryRun bool) error {
	if n, err := strconv.ParseUint(sent, 10, 64); err == nil && n != 0 && !dryRun {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	return nil
}

func (a *attempt) setDefaults(context.Context) error {
	if a.q.Served.Default != nil {
		a.q.Served.Default(a.next.obj)
	}
	return nil
}

func (a *attempt) name() string {
	if m, err := meta.Accessor(a.next.obj); a.next.obj != nil && err == nil && m.GetName() != "" {
		return m.GetName()
	}
	return a.q.Name
}

// encode is the stage that encodes the object in its stored version.
func (a *attempt) encode(ctx context.Context) error {
	k := a.q.StoredKind()
	a.next.stored = a.next.obj
	if u, ok := a.next.obj.(*unstructured.Unstructured); ok && k != a.q.Served.Kind {
		made, err := k.Untyped.Family.Convert(ctx, []*unstructured.Unstructured{u}, k)
		if err != nil {
			return err
		}
		a.next.stored = made[0]
	}
	data, err := cache.Encode(k, a.next.stored)
	a.next.data = data
	return err
}

// key returns the object's key, relative to the prefix of its kind.
func (a *attempt) key() string {
	m, err := meta.Accessor(a.next.obj)
	if a.next.obj == nil || err != nil {
		return a.q.Key()
	}
	if a.q.Served.Namespaced {
		return m.GetNamespace() + "/" + m.GetName()
	}
	return m.GetName()
}
