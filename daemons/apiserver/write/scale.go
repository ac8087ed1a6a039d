package write

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
)

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// ServeScale reads and sets an object's replicas through a Scale, for any kind that has that subresource.
func (s Subresources) ServeScale(q *request.Request) error {
	if q.Verb == "get" {
		version := q.Query.Get("resourceVersion")
		if _, err := s.writes.config.Reads.WaitForVersion(q.HTTP.Context(), version); err != nil {
			return err
		}
		e, err := q.LiveEntry()
		if err != nil {
			return err
		}
		return writeScaleOf(q, e)
	}
	if q.Verb != "update" && q.Verb != "patch" {
		return request.MethodNotAllowed(q)
	}
	w, err := s.writes.newWrite(q)
	if err != nil {
		return err
	}
	next := patchedScale
	if q.Verb == "update" {
		next = sentScale
	}
	change, err := next(w)
	if err != nil {
		return err
	}
	e, err := w.modify(q.HTTP.Context(), change)
	if err != nil {
		return err
	}
	return writeScaleOf(q, e)
}

// writeScaleOf answers with the scale of an object.
func writeScaleOf(q *request.Request, e *cache.Entry) error {
	e, err := e.ConvertTo(q.HTTP.Context(), q.Served.Kind)
	if err != nil {
		return err
	}
	obj, err := e.Object()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	scale, err := scaleOf(q, obj)
	if err != nil {
		return err
	}
	return writeScale(q, scale)
}

// writeScale answers with a scale, as a table where the client wants one.
func writeScale(q *request.Request, scale *autoscalingv1.Scale) error {
	return q.Media.WriteRow(q.Answer, http.StatusOK, scaleKind, scale, scaleColumns, []any{
		scale.Name, scale.Spec.Replicas, scale.Status.Replicas,
		duration.HumanDuration(time.Since(scale.CreationTimestamp.Time))})
}

var scaleColumns = []metav1.TableColumnDefinition{
	{
		Name:   "Name",
		Type:   "string",
		Format: "name",
	}, {Name: "Desired", Type: "integer"}, {Name: "Available", Type: "integer"}, {Name: "Age", Type: "string"},
}

func applyScale(
	q *request.Request,
	live runtime.Object,
	next func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error),
) (runtime.Object, error) {
	if live == nil {
		return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
	}
	before, err := scaleOf(q, live)
	if err != nil {
		return nil, err
	}
	scale, err := next(before.DeepCopy())
	if err != nil {
		return nil, err
	}
	if err := checkVersion(q, scale, before); err != nil {
		return nil, err
	}
	if scale.UID != "" && scale.UID != before.UID {
		return nil, apierrors.NewConflict(q.GroupResource(), q.Name, uidConflict(scale.UID, before.UID))
	}
	if scale.Spec.Replicas < 0 {
		return nil, apierrors.NewInvalid(scaleKind.GroupKind(), q.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas,
				"must be greater than or equal to 0")})
	}
	obj := live.DeepCopyObject()
	q.Served.Scale.Set(obj, scale.Spec.Replicas)
	return obj, nil
}

func scaleOf(q *request.Request, obj runtime.Object) (*autoscalingv1.Scale, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	spec, status, selector := q.Served.Scale.Get(obj)
	return &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUID(),
			ResourceVersion: m.GetResourceVersion(), CreationTimestamp: m.GetCreationTimestamp(),
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: spec},
		Status: autoscalingv1.ScaleStatus{Replicas: status, Selector: selector},
	}, nil
}

// sentScale returns a function that applies the Scale in the request to an object.
func sentScale(w *write) (func(live runtime.Object) (runtime.Object, error), error) {
	sent := &autoscalingv1.Scale{}
	if err := body.Decode(w.q, scaleKind, sent); err != nil {
		return nil, err
	}
	if err := setNameAndNamespace(w.q, sent); err != nil {
		return nil, err
	}
	return func(live runtime.Object) (runtime.Object, error) {
		return applyScale(w.q, live, func(*autoscalingv1.Scale) (*autoscalingv1.Scale, error) { return sent, nil })
	}, nil
}

// patchedScale returns a function that applies the patch in the request to an object's Scale. It supports all patch
// types.
func patchedScale(w *write) (func(live runtime.Object) (runtime.Object, error), error) {
	q := w.q
	patchType, data, doubts, err := readPatch(q)
	if err != nil {
		return nil, err
	}
	if w.isApply = patchType == types.ApplyPatchType; w.isApply {
		declared, err := decodeDeclared(data)
		if err != nil {
			return nil, err
		}
		return func(live runtime.Object) (runtime.Object, error) {
			return w.s.mergedScale(q, live, declared, doubts)
		}, nil
	}
	next := func(live *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
		before, err := json.Marshal(live)
		if err != nil {
			return nil, fmt.Errorf("encode the scale to patch: %w", err)
		}
		after, err := applyPatch(before, data, patchType, &autoscalingv1.Scale{})
		if err != nil {
			return nil, err
		}
		scale := &autoscalingv1.Scale{}
		return scale, decodePatched(q, patchType, data, after, scaleKind, scale, nil)
	}
	return func(live runtime.Object) (runtime.Object, error) { return applyScale(q, live, next) }, nil
}
