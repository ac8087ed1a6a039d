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

	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds"
)

// decodeCustom decodes an object of a custom resource by its schema. doubts are what strict decoding would refuse.
func decodeCustom(
	q *request.Request,
	data []byte,
	gvk schema.GroupVersionKind,
	u *unstructured.Unstructured,
) (doubts []error, err error) {
	u.Object = nil
	doubts, err = kjson.UnmarshalStrict(data, &u.Object)
	if err != nil {
		if _, err := json.DefaultMetaFactory.Interpret(data); err != nil {
			return nil, unrecognizedKind(data, gvk, err)
		}
		return nil, newDecodeError(gvk, err)
	}
	if err := checkDeclaredKind(q, data, gvk, u); err != nil {
		return nil, err
	}
	unknown, err := q.Served.Untyped.Accept(u)
	if err != nil {
		return nil, newDecodeError(gvk, err)
	}
	for _, path := range unknown {
		doubts = append(doubts, fmt.Errorf("unknown field %q", path))
	}
	return doubts, nil
}

// checkDeclaredKind refuses an object of another kind or version. The result of a patch is checked for both together.
func checkDeclaredKind(q *request.Request, data []byte, gvk schema.GroupVersionKind,
	u *unstructured.Unstructured) error {
	kind, version := u.GetKind(), u.GetAPIVersion()
	is, err := schema.ParseGroupVersion(version)
	switch {
	case kind == "":
		return unrecognizedKind(data, gvk, runtime.NewMissingKindErr(string(data)))
	case err != nil:
		return unrecognizedKind(data, gvk, err)
	case kind == gvk.Kind && is == gvk.GroupVersion():
		return nil
	case is != gvk.GroupVersion() && q.Verb != "patch":
		return wrongVersion(is.WithKind(kind), gvk)
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
	return request.InvalidError(is.WithKind(kind).GroupKind(), u.GetName(), wrong)
}

// terminatingError returns the error for creating an object whose definition is being deleted.
func terminatingError(q *request.Request) error {
	err := apierrors.NewMethodNotSupported(q.GroupResource(), q.Verb)
	err.ErrStatus.Message = fmt.Sprintf(
		"create not allowed while custom resource definition is terminating: %s",
		q.GroupResource(),
	)
	return err
}

// customConverter converts between the versions of a custom resource, for field managers.
type customConverter struct{ family *kinds.Family }

// Convert implements runtime.ObjectConvertor.
func (m customConverter) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, also := out.(*unstructured.Unstructured)
	if !ok || !also {
		return fmt.Errorf("a %T cannot be made of a %T", out, in)
	}
	made, err := m.convertTo(from, to.GroupVersionKind())
	if err != nil {
		return err
	}
	to.Object = made.Object
	return nil
}

func (m customConverter) convertTo(u *unstructured.Unstructured,
	gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	k := m.family.Version(gvk.Version)
	if k == nil {
		return nil, runtime.NewNotRegisteredErrForKind("the definition", gvk)
	}
	made, err := m.family.Convert(context.Background(), []*unstructured.Unstructured{u}, k)
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (m customConverter) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()})
	u, is := in.(*unstructured.Unstructured)
	if !ok || !is {
		return nil, fmt.Errorf("a %s cannot be converted to %s", in.GetObjectKind().GroupVersionKind(), to.Identifier())
	}
	if gvk == u.GroupVersionKind() {
		return shallowCopy(in), nil
	}
	return m.convertTo(u, gvk)
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (customConverter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// New implements runtime.ObjectCreater.
func (customConverter) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
