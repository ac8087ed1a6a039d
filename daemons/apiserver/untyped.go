package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// accept reads an object of a kind that a definition declares, as its schema says, and
// returns what a strict reader would refuse.
func accept(q *request, data []byte, gvk schema.GroupVersionKind, u *unstructured.Unstructured) (doubts []error, err error) {
	u.Object = nil
	doubts, err = kjson.UnmarshalStrict(data, &u.Object)
	if err != nil {
		return nil, undecodable(gvk, err)
	}
	is := metav1.TypeMeta{APIVersion: u.GetAPIVersion(), Kind: u.GetKind()}
	switch {
	case is.Kind == "":
		return nil, undecodable(gvk, runtime.NewMissingKindErr("the object"))
	case is.APIVersion == "":
		return nil, undecodable(gvk, runtime.NewMissingVersionErr("the object"))
	}
	if err := matches(is, gvk); err != nil {
		return nil, err
	}
	unknown, err := q.served.Untyped.Accept(gvk.Version, u)
	if err != nil {
		return nil, undecodable(gvk, err)
	}
	for _, path := range unknown {
		doubts = append(doubts, fmt.Errorf("unknown field %q", path))
	}
	return doubts, nil
}

// closed refuses to make objects whose definition is going.
func closed(q *request) error {
	err := apierrors.NewMethodNotSupported(q.gr(), q.Verb)
	err.ErrStatus.Message = fmt.Sprintf("create not allowed while custom resource definition is terminating: %s", q.gr())
	return err
}

// renames converts between versions that differ in nothing but their names.
type renames struct{}

// Convert implements runtime.ObjectConvertor.
func (renames) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, also := out.(*unstructured.Unstructured)
	if !ok || !also {
		return fmt.Errorf("a %T cannot be made of a %T", out, in)
	}
	gvk := to.GroupVersionKind()
	to.Object = from.DeepCopy().Object
	to.SetGroupVersionKind(gvk)
	return nil
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (renames) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()})
	if !ok {
		return nil, fmt.Errorf("a %s cannot be converted to %s", in.GetObjectKind().GroupVersionKind(), to.Identifier())
	}
	out := shallow(in)
	out.GetObjectKind().SetGroupVersionKind(gvk)
	return out, nil
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (renames) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// New implements runtime.ObjectCreater.
func (renames) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
