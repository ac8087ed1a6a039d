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
)

// Replace puts an object, seen in a version, in the place of the one that is written.
func Replace(ctx context.Context, a *api.Admission, v api.Version, obj runtime.Object) error {
	if is := obj.GetObjectKind().GroupVersionKind(); is != v.Kind {
		return apierrors.NewInternalError(fmt.Errorf("a mutation made a %s of a %s, which cannot be", is, v.Kind))
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

// Decode reads the JSON of an object of the same type as another.
func Decode(data []byte, like runtime.Object) (runtime.Object, error) {
	if _, ok := like.(*unstructured.Unstructured); ok {
		u := &unstructured.Unstructured{}
		return u, kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object)
	}
	obj, ok := reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("a %T cannot be made anew", like)
	}
	return obj, kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
}

// Typed returns an object in the type of another one of its kind.
func Typed(obj, like runtime.Object) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if _, same := like.(*unstructured.Unstructured); !ok || same {
		return obj, nil
	}
	to, ok := reflect.New(reflect.TypeOf(like).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("a %T cannot be made anew", like)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to); err != nil {
		return nil, fmt.Errorf("read what was made of a %T: %w", like, err)
	}
	return to, nil
}

// Same says whether two objects say the same.
func Same(a, b runtime.Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return equality.Semantic.DeepEqual(a, b)
}
