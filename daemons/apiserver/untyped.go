package apiserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/kinds"
)

// accept decodes an object of a custom resource by its schema. doubts are what strict decoding would refuse.
func accept(
	q *request,
	data []byte,
	gvk schema.GroupVersionKind,
	u *unstructured.Unstructured,
) (doubts []error, err error) {
	u.Object = nil
	doubts, err = kjson.UnmarshalStrict(data, &u.Object)
	if err != nil {
		if _, err := json.DefaultMetaFactory.Interpret(data); err != nil {
			return nil, unrecognized(data, gvk, err)
		}
		return nil, undecodable(gvk, err)
	}
	if err := isDeclared(q, data, gvk, u); err != nil {
		return nil, err
	}
	unknown, err := q.served.Untyped.Accept(u)
	if err != nil {
		return nil, undecodable(gvk, err)
	}
	for _, path := range unknown {
		doubts = append(doubts, fmt.Errorf("unknown field %q", path))
	}
	return doubts, nil
}

// isDeclared refuses an object of another kind or version. The result of a patch is checked for both together.
func isDeclared(q *request, data []byte, gvk schema.GroupVersionKind, u *unstructured.Unstructured) error {
	kind, version := u.GetKind(), u.GetAPIVersion()
	is, err := schema.ParseGroupVersion(version)
	switch {
	case kind == "":
		return unrecognized(data, gvk, runtime.NewMissingKindErr(string(data)))
	case err != nil:
		return unrecognized(data, gvk, err)
	case kind == gvk.Kind && is == gvk.GroupVersion():
		return nil
	case is != gvk.GroupVersion() && q.Verb != "patch":
		return otherVersion(is.WithKind(kind), gvk)
	}
	var wrong field.ErrorList
	if kind != gvk.Kind {
		wrong = append(wrong, field.Invalid(field.NewPath("kind"), kind, "must be "+gvk.Kind))
	}
	if is != gvk.GroupVersion() {
		wrong = append(
			wrong,
			field.Invalid(field.NewPath("apiVersion"), version, "must be "+gvk.GroupVersion().String()),
		)
	}
	return invalid(is.WithKind(kind).GroupKind(), u.GetName(), wrong)
}

// closed returns the error for creating an object whose definition is being deleted.
func closed(q *request) error {
	err := apierrors.NewMethodNotSupported(q.gr(), q.Verb)
	err.ErrStatus.Message = fmt.Sprintf(
		"create not allowed while custom resource definition is terminating: %s",
		q.gr(),
	)
	return err
}

// members converts between the versions of a custom resource, for field managers.
type members struct{ family *kinds.Family }

// Convert implements runtime.ObjectConvertor.
func (m members) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, also := out.(*unstructured.Unstructured)
	if !ok || !also {
		return fmt.Errorf("a %T cannot be made of a %T", out, in)
	}
	made, err := m.in(from, to.GroupVersionKind())
	if err != nil {
		return err
	}
	to.Object = made.Object
	return nil
}

func (m members) in(u *unstructured.Unstructured, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	k := m.family.Of(gvk.Version)
	if k == nil {
		return nil, runtime.NewNotRegisteredErrForKind("the definition", gvk)
	}
	made, err := m.family.In(context.Background(), []*unstructured.Unstructured{u}, k)
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (m members) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()})
	u, is := in.(*unstructured.Unstructured)
	if !ok || !is {
		return nil, fmt.Errorf("a %s cannot be converted to %s", in.GetObjectKind().GroupVersionKind(), to.Identifier())
	}
	if gvk == u.GroupVersionKind() {
		return shallow(in), nil
	}
	return m.in(u, gvk)
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (members) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// New implements runtime.ObjectCreater.
func (members) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
