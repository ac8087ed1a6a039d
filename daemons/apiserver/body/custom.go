package body

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/apiserver/request"
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
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case kind == "":
		return unrecognizedKind(data, gvk, runtime.NewMissingKindErr(string(data)))
	case err != nil:
		return unrecognizedKind(data, gvk, err)
	case kind == gvk.Kind && gv == gvk.GroupVersion():
		return nil
	case gv != gvk.GroupVersion() && q.Verb != "patch":
		return wrongVersion(gv.WithKind(kind), gvk)
	}
	var wrong field.ErrorList
	if kind != gvk.Kind {
		wrong = append(wrong, field.Invalid(field.NewPath("kind"), kind, "must be "+gvk.Kind))
	}
	if gv != gvk.GroupVersion() {
		wrong = append(wrong, field.Invalid(field.NewPath("apiVersion"), version,
			"must be "+gvk.GroupVersion().String()))
	}
	return request.InvalidError(gv.WithKind(kind).GroupKind(), u.GetName(), wrong)
}
