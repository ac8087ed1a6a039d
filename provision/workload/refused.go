package workload

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
)

// dryRun applies an object in a dry run.
func (l *Live) dryRun(ctx context.Context, d Desired) (*unstructured.Unstructured, error) {
	client, err := l.client(d.Object.GroupVersionKind(), d.Object.GetNamespace())
	if err != nil {
		return nil, err
	}
	return l.write(ctx, client, d, metav1.DryRunAll)
}

// write applies an object. It wraps errors in writeError.
func (l *Live) write(
	ctx context.Context,
	client dynamic.ResourceInterface,
	d Desired,
	dryRun ...string,
) (*unstructured.Unstructured, error) {
	object := d.Object
	// The version makes the write fail if an ignored field changed after it was copied from the live object.
	if d.version != "" && len(dryRun) == 0 {
		object = object.DeepCopy()
		object.SetResourceVersion(d.version)
	}
	result, err := client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: l.fieldManager(),
		Force: true, DryRun: dryRun})
	if err != nil {
		return nil, writeError{err}
	}
	return result, nil
}

// writeError is the error of a write. Its text is that of the wrapped error.
type writeError struct{ error }

func (e writeError) Unwrap() []error { return []error{e.error, errWrite} }

// tryApply compares an object. If the object does not exist, tryApply also creates it in a dry run.
func (l *Live) tryApply(ctx context.Context, d Desired, existing *listedObjects) (plan.Object, error) {
	o, err := l.compare(ctx, &d, existing)
	if errors.As(err, new(deletingError)) {
		return o, nil // the new object cannot be tried before the present one is gone
	}
	if err == nil && o.Action == plan.Create {
		_, err = l.dryRun(ctx, d)
	}
	return o, err
}

// errWrite marks errors of writes, including dry runs, as opposed to reads.
var errWrite = errors.New("write")

// isRefusal reports whether an error concerns the object and not the state of the API. A 5xx error of a write counts as
// refusal, because the object could be read just before: the cause is probably a webhook that does not answer.
func isRefusal(err error) bool {
	if meta.IsNoMatchError(err) || errors.As(err, new(foreignError)) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500 || code >= 500 && errors.Is(err, errWrite)
	}
}

// indexedRefusal is a refusal with the index of the declared object.
type indexedRefusal struct {
	session.Refusal
	index int
}

// unresolvedRefusals returns the errors that the plan itself does not resolve.
func unresolvedRefusals(desired []Desired, entries []plan.Object, failed []error) (list []indexedRefusal) {
	changing := map[objectKey]bool{} // objects that the same plan creates or changes
	kinds := map[schema.GroupKind]bool{}
	for i, d := range desired {
		if entries[i].Action == plan.None || failed[i] != nil {
			continue
		}
		changing[objectKey{d.Object.GetKind(), d.Object.GetNamespace(), d.Object.GetName()}] = true
		if d.Object.GetKind() == "CustomResourceDefinition" {
			group, _, _ := unstructured.NestedString(d.Object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(d.Object.Object, "spec", "names", "kind")
			kinds[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	for i, err := range failed {
		d := desired[i]
		if err == nil || kinds[d.Object.GroupVersionKind().GroupKind()] || awaitsPlanned(d, err, changing) {
			continue
		}
		list = append(list, indexedRefusal{newRefusal(d, err), i})
	}
	return list
}

func newRefusal(d Desired, err error) session.Refusal {
	unknown := meta.IsNoMatchError(err)
	if unknown {
		err = errors.New("there is no such kind in " + d.Object.GetAPIVersion())
	}
	return session.Refusal{
		Address:       d.Address,
		Source:        d.Source,
		Kind:          d.Object.GetKind(),
		Name:          fullName(d.Object.GetNamespace(), d.Object.GetName()),
		IsUnknownKind: unknown,
		Err:           err,
	}
}

func joinRefusals(list []indexedRefusal) (r session.RefusedError) {
	for _, f := range list {
		r.List = append(r.List, f.Refusal)
	}
	return r
}

type objectKey struct{ kind, namespace, name string }

// awaitsPlanned reports whether an object is refused only because the plan creates its namespace, or its pod's service
// account or priority class, before it.
func awaitsPlanned(d Desired, err error, changing map[objectKey]bool) bool {
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return changing[objectKey{"Namespace", "", d.Object.GetNamespace()}]
	}
	if !apierrors.IsForbidden(err) || d.Object.GetKind() != "Pod" {
		return false
	}
	account, _, _ := unstructured.NestedString(d.Object.Object, "spec", "serviceAccountName")
	if account == "" && isTemporary(err) { // a namespace's default account is created a moment after it
		return true
	}
	priority, _, _ := unstructured.NestedString(d.Object.Object, "spec", "priorityClassName")
	return changing[objectKey{"ServiceAccount", d.Object.GetNamespace(), account}] ||
		changing[objectKey{"PriorityClass", "", priority}]
}

// refusedObjects returns the objects that refusals apply to.
func refusedObjects(desired []Desired, list []session.Refusal) (about []Desired) {
	for _, d := range desired {
		if slices.ContainsFunc(list, func(r session.Refusal) bool {
			return r.Address == d.Address && r.Kind == d.Object.GetKind() &&
				r.Name == fullName(d.Object.GetNamespace(), d.Object.GetName())
		}) {
			about = append(about, d)
		}
	}
	return about
}

// retry applies refused objects again, because objects were created or deleted since: a node port may have become free,
// or a webhook or policy may exist now. It returns what is still refused, which was reported before.
func (l *Live) retry(
	ctx context.Context,
	refused []Desired,
	list []session.Refusal,
	report func(plan.Object),
) ([]Desired, []session.Refusal, error) {
	if len(refused) == 0 {
		return refused, list, nil
	}
	_, still, err := l.applyAll(ctx, refused, time.Time{}, func(o plan.Object) {
		if o.Action != plan.Refused {
			report(o)
		}
	})
	if err != nil {
		return refused, list, err
	}
	return refusedObjects(refused, still), still, nil
}
