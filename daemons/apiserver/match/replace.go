package match

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds/quantity"
)

// Replace replaces the written object by obj, which is in version v.
func Replace(ctx context.Context, a *api.Admission, v api.Version, obj runtime.Object) error {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk != v.Kind {
		return apierrors.NewInternalError(fmt.Errorf("a mutation made a %s of a %s, which cannot be", gvk, v.Kind))
	}
	if a.Versions == nil {
		a.Object = obj
		return nil
	}
	hub, err := a.Versions.From(ctx, obj, v)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("take back an object that was shown as %s: %w", v.Kind, err))
	}
	a.Object = hub
	return nil
}

// Decode decodes JSON to an object of the same Go type as like.
func Decode(data []byte, like runtime.Object) (runtime.Object, error) {
	if _, ok := like.(*unstructured.Unstructured); ok {
		u := &unstructured.Unstructured{}
		return u, kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object)
	}
	obj, ok := reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("a %T cannot be created again", like)
	}
	if err := quantity.Check(data, obj); err != nil {
		return nil, err
	}
	return obj, kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
}

// ConvertLike converts an object to the Go type of like, an object of its kind.
func ConvertLike(obj, like runtime.Object) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if _, same := like.(*unstructured.Unstructured); !ok || same {
		return obj, nil
	}
	to, ok := reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("a %T cannot be created again", like)
	}
	err := quantity.CheckFields(u.Object, to)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was made of a %T: %w", like, err)
	}
	return to, nil
}

// Equal reports whether two objects are semantically equal.
func Equal(a, b runtime.Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return equality.Semantic.DeepEqual(a, b)
}
