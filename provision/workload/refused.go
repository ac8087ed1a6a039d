package workload

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/provision/plan"
	"clusterctl/provision/run"
)

// dryRun has the API do everything about applying an object but keep it.
func (l *Live) dryRun(ctx context.Context, d Desired) (*unstructured.Unstructured, error) {
	client, err := l.client(d.Object.GroupVersionKind(), d.Object.GetNamespace())
	if err != nil {
		return nil, err
	}
	return client.Apply(ctx, d.Object.GetName(), d.Object, metav1.ApplyOptions{FieldManager: Manager, Force: true, DryRun: []string{metav1.DryRunAll}})
}

// try compares an object, and has one that is not there made in a dry run.
func (l *Live) try(ctx context.Context, d Desired) (plan.Object, error) {
	o, err := l.compare(ctx, d)
	if err == nil && o.Action == plan.Create {
		_, err = l.dryRun(ctx, d)
	}
	return o, err
}

// refuses reports whether an error is the API's word on an object, rather than on how the
// API itself is.
func refuses(err error) bool {
	if meta.IsNoMatchError(err) {
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
		return code >= 400 && code < 500
	}
}

// refusals are the errors that the plan itself does not settle.
func refusals(desired []Desired, entries []plan.Object, failed []error) (list run.Refused) {
	changing := map[key]bool{} // what the same plan makes or changes
	kinds := map[schema.GroupKind]bool{}
	for i, d := range desired {
		if entries[i].Action == plan.None || failed[i] != nil {
			continue
		}
		changing[key{d.Object.GetKind(), d.Object.GetNamespace(), d.Object.GetName()}] = true
		if d.Object.GetKind() == "CustomResourceDefinition" {
			group, _, _ := unstructured.NestedString(d.Object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(d.Object.Object, "spec", "names", "kind")
			kinds[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	for i, err := range failed {
		d := desired[i]
		if err == nil || kinds[d.Object.GroupVersionKind().GroupKind()] || awaits(d, err, changing) {
			continue
		}
		unknown := meta.IsNoMatchError(err)
		if unknown {
			err = errors.New("there is no such kind in " + d.Object.GetAPIVersion())
		}
		list = append(list, run.Refusal{Address: d.Address, Source: d.Source, Kind: d.Object.GetKind(), Name: fullName(d.Object.GetNamespace(), d.Object.GetName()), Unknown: unknown, Err: err})
	}
	return list
}

type key struct{ kind, namespace, name string }

// awaits reports whether an object is refused only for what the plan makes before it: its
// namespace, or its pod's account or priority.
func awaits(d Desired, err error, changing map[key]bool) bool {
	if apierrors.IsNotFound(err) {
		return changing[key{"Namespace", "", d.Object.GetNamespace()}]
	}
	if !apierrors.IsForbidden(err) || d.Object.GetKind() != "Pod" {
		return false
	}
	account, _, _ := unstructured.NestedString(d.Object.Object, "spec", "serviceAccountName")
	if account == "" && soon(err) { // a namespace's own account comes a moment after it
		return true
	}
	priority, _, _ := unstructured.NestedString(d.Object.Object, "spec", "priorityClassName")
	return changing[key{"ServiceAccount", d.Object.GetNamespace(), account}] || changing[key{"PriorityClass", "", priority}]
}
