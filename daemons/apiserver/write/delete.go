package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/read"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// deleteOptions reads the options of a deletion from the body, or from the query if the body is empty.
func deleteOptions(q *request.Request) (*metav1.DeleteOptions, error) {
	o := &metav1.DeleteOptions{}
	data, protobuf, _, err := body.ReadObject(q)
	switch {
	case err != nil:
		return nil, err
	case len(data) == 0:
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&q.Query, o, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case protobuf:
		if err := body.DecodeProtobuf(data, schema.GroupVersionKind{}, o); err != nil {
			return nil, err
		}
	default:
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, o); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding delete options: %v", err))
		}
		if o.Kind != "" && o.Kind != "DeleteOptions" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("no kind %q is registered for version %q", o.Kind,
				o.APIVersion))
		}
	}
	if err := request.InvalidOptions("DeleteOptions", validation.ValidateDeleteOptions(o)); err != nil {
		return nil, err
	}
	if grace := o.GracePeriodSeconds; grace != nil && *grace < 0 {
		*grace = 1
	}
	return o, nil
}

// Delete removes an object, or begins its deletion.
func (s *Writes) Delete(q *request.Request) error {
	o, err := deleteOptions(q)
	if err != nil {
		return err
	}
	if ignoresReadErrors(o) && len(o.DryRun) == 0 {
		return s.deleteUnreadable(q)
	}
	e, isGone, err := s.deleteObject(q.HTTP.Context(), q, q.Key(), o)
	if err != nil {
		return err
	}
	if !isGone || q.Served.Untyped == nil && deletionReturnsObject[q.Served.Resource] {
		return q.WriteEntry(http.StatusOK, e)
	}
	obj, err := e.Object()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	return q.Media.WriteObject(q.Answer, http.StatusOK, request.StatusKind, &metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name:  e.Name,
			Group: q.Group,
			Kind:  q.GroupVersionResource.Resource,
			UID:   m.GetUID(),
		},
	})
}

// deletionReturnsObject names the built-in resources whose deletion returns the object itself, as upstream does.
var deletionReturnsObject = map[string]bool{
	"pods": true, "services": true, "serviceaccounts": true, "persistentvolumes": true, "persistentvolumeclaims": true,
	"podtemplates": true, "resourcequotas": true, "storageclasses": true, "csinodes": true, "volumeattachments": true,
	"csidrivers":              true,
	"volumeattributesclasses": true, "deviceclasses": true, "devicetaintrules": true, "resourceclaims": true,
	"resourceclaimtemplates": true, "resourceslices": true,
}

// deleteObject deletes the object at a key. If something delays that, such as a finalizer, remove marks the object as
// being deleted. It returns the object's last state and whether it is gone.
func (s *Writes) deleteObject(
	ctx context.Context,
	q *request.Request,
	key string,
	o *metav1.DeleteOptions,
) (*cache.Entry, bool, error) {
	live, fresh := q.Cache.Get(key), false
	for ctx.Err() == nil {
		if !fresh && live == nil {
			var err error
			if live, err = s.readStored(ctx, q, key); err != nil {
				return nil, false, err
			}
			fresh = true
		}
		e, isGone, lost, err := s.deleteEntry(ctx, q, live, key, o)
		if err == nil && !lost && (fresh || e.Revision != live.Revision || isGone) {
			return e, isGone, nil
		}
		if err != nil && (fresh && !lost || errors.As(err, new(*uncertainError))) {
			return nil, false, err
		}
		again, readErr := s.readStored(ctx, q, key)
		if readErr != nil {
			return nil, false, readErr
		}
		if !lost && revisionOf(again) == revisionOf(live) {
			return e, isGone, err
		}
		live, fresh = again, true
	}
	return nil, false, ctx.Err()
}

func (s *Writes) deleteEntry(
	ctx context.Context,
	q *request.Request,
	live *cache.Entry,
	key string,
	o *metav1.DeleteOptions,
) (e *cache.Entry, isGone, lost bool, err error) {
	if live == nil {
		_, name, found := strings.Cut(key, "/")
		if !found {
			name = key
		}
		return nil, false, false, apierrors.NewNotFound(q.GroupResource(), name)
	}
	w := &write{s: s, q: q, dryRun: len(o.DryRun) > 0, deletion: o}
	a := w.begin("DELETE")
	if err := a.load(ctx, live); err != nil {
		return nil, false, false, err
	}
	if err := checkPreconditions(q, a.live.obj, o.Preconditions); err != nil {
		return nil, false, false, err
	}
	if err := a.admitDeletion(ctx, live.Name); err != nil {
		return nil, false, false, err
	}
	a.next.obj = a.live.obj.DeepCopyObject()
	if err := markDeleting(q, a.next.obj, o, s.config.Now()); err != nil {
		return nil, false, false, err
	}
	if err := a.encode(ctx); err != nil {
		return nil, false, false, err
	}
	isGone = canRemove(a.next.obj)
	e, lost, err = a.put(ctx)
	return e, isGone, lost, err
}

// admitDeletion calls all admission plugins for a deletion, which has no new object.
func (a *attempt) admitDeletion(ctx context.Context, name string) error {
	admission := a.admission()
	admission.Name, admission.Subresource = name, ""
	if err := a.s.admitter.runMutators(ctx, a.s.admitter.all, admission); err != nil {
		return err
	}
	return a.s.admitter.runValidators(ctx, a.s.admitter.all, admission)
}

func checkPreconditions(q *request.Request, obj runtime.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	// upstream names the kind here
	named := schema.GroupResource{Group: q.Served.GVK.Group, Resource: q.Served.GVK.Kind}
	if uid := uidString(p.UID); uid != "" && uid != string(m.GetUID()) {
		return apierrors.NewConflict(named, m.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match "+
			"the UID in record (%s). The object might have been deleted and then recreated", uid, m.GetUID()))
	}
	if v := p.ResourceVersion; v != nil && *v != m.GetResourceVersion() {
		return apierrors.NewConflict(named, m.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) "+
			"does not match the ResourceVersion in record (%s). The object might have been modified", *v,
			m.GetResourceVersion()))
	}
	return nil
}

// markDeleting sets the deletion timestamp, the grace period and the finalizers of the object that a request deletes.
func markDeleting(q *request.Request, obj runtime.Object, o *metav1.DeleteOptions, now time.Time) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	m.SetFinalizers(deletionFinalizers(m.GetFinalizers(), o, q.Served.Dependents))
	if m.GetDeletionTimestamp() == nil {
		for _, f := range q.Served.Finalizers {
			if !slices.Contains(m.GetFinalizers(), f) {
				m.SetFinalizers(append(m.GetFinalizers(), f))
			}
		}
	}
	now = now.UTC().Truncate(time.Second)
	grace := int64(0)
	if period := q.Served.GracePeriod; period != nil {
		grace = max(0, period(obj, o.GracePeriodSeconds))
	}
	if start := m.GetDeletionTimestamp(); start != nil {
		// The grace period of a deletion under way can be shortened, not extended.
		before := m.GetDeletionGracePeriodSeconds()
		if before == nil || o.GracePeriodSeconds == nil || grace >= *before {
			return nil
		}
		now = start.Add(-api.Seconds(*before))
	} else if q.Served.HasGeneration || q.Served.GracePeriod != nil {
		if m.GetGeneration() > 0 {
			m.SetGeneration(m.GetGeneration() + 1)
		}
	}
	at := metav1.Time{Time: now.Add(api.Seconds(grace))}
	m.SetDeletionTimestamp(&at)
	m.SetDeletionGracePeriodSeconds(&grace)
	if ns, ok := obj.(*corev1.Namespace); ok {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
	return nil
}

// deletionFinalizers returns the finalizers of a deleted object after the propagation policy is applied. Without a
// policy, the finalizers that the object already has decide, and otherwise the default of its kind.
func deletionFinalizers(finalizers []string, o *metav1.DeleteOptions, byDefault kinds.Dependents) []string {
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	want := ""
	switch {
	case byDefault == kinds.NoDependents:
	case o.OrphanDependents != nil && *o.OrphanDependents:
		want = orphan
	case o.OrphanDependents != nil:
	case o.PropagationPolicy == nil:
		if byDefault != kinds.OrphanDependents || slices.Contains(finalizers, orphan) ||
			slices.Contains(finalizers, foreground) {
			return finalizers
		}
		want = orphan
	case *o.PropagationPolicy == metav1.DeletePropagationOrphan:
		want = orphan
	case *o.PropagationPolicy == metav1.DeletePropagationForeground:
		want = foreground
	}
	kept := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == orphan || f == foreground })
	if want != "" {
		kept = append(kept, want)
	}
	return kept
}

// DeleteCollection deletes the selected objects.
func (s *Writes) DeleteCollection(q *request.Request) error {
	page, err := read.ParsePage(q)
	if err != nil {
		return err
	}
	o, err := deleteOptions(q)
	if err != nil {
		return err
	}
	if ignoresReadErrors(o) {
		return request.InvalidOptions("DeleteOptions",
			field.ErrorList{field.Invalid(field.NewPath(ignoreReadErrors), true,
				"is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	chosen, list, err := s.config.Reads.Choose(page)
	if err != nil {
		return err
	}
	for _, e := range chosen {
		one := q.WithObject(e.Namespace, e.Name)
		if _, _, err := s.deleteObject(q.HTTP.Context(), one, e.Key, o); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return writeDeleted(q, chosen, list)
}

// releaseAddresses gives back the addresses that a deleted service had claimed.
func (a *attempt) releaseAddresses(txn *store.Txn) {
	if svc, ok := a.live.obj.(*corev1.Service); ok && a.s.config.Services != nil {
		a.s.config.Services.Release(svc, txn)
	}
}

// writeDeleted answers with the list of deleted objects. If more are selected, the list has a token to continue with.
func writeDeleted(q *request.Request, deleted []*cache.Entry, list metav1.ListMeta) error {
	if err := q.Convert(deleted); err != nil {
		return err
	}
	return q.Media.WriteList(q.Answer, q.Served, wire.List{Entries: deleted, Rows: q.IncludeObject(), Meta: list})
}
