package write

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/apiserver/ownership"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds/quantity"
)

// decodeDeclared decodes the body of an apply request. The merge checks the version and unknown fields later.
func decodeDeclared(data []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	// Whole numbers must stay integers, because typed values require them.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	return u, nil
}

// checkDeclared returns an error if what a manager declares has a quantity that is not parsed.
func checkDeclared(q *request.Request, data []byte) error {
	if q.Served.Untyped != nil {
		return nil
	}
	if err := quantity.Check(data, q.Served.NewObject()); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	return nil
}

// mergeDeclared returns the object that results when a manager declares fields of it; live is nil if there is no object
// yet. doubts are the errors that strict decoding found in the declaration.
func (s *Writes) mergeDeclared(
	q *request.Request,
	live runtime.Object,
	declared *unstructured.Unstructured,
	doubts []error,
) (runtime.Object, error) {
	fresh := live == nil
	if fresh {
		if q.Subresource != "" {
			return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
		}
		if q.Served.Untyped != nil && q.Served.Untyped.Family.IsClosed.Load() {
			return nil, TerminatingError(q)
		}
		if err := s.authorizeCreate(q); err != nil {
			return nil, err
		}
		live = q.Served.New()
	}
	fields, err := s.config.Owners.MergeManager(q.Served, q.Subresource, live, declared)
	if err != nil {
		return nil, err
	}
	before := live
	live = live.DeepCopyObject()
	live.GetObjectKind().SetGroupVersionKind(q.Served.GVK)
	obj, err := applyDeclared(q, fields, live, declared, doubts)
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if fresh {
		if m.GetUID() != "" {
			return nil, apierrors.NewConflict(q.GroupResource(), q.Name, fmt.Errorf(
				"uid mismatch: the provided object specified uid %s, and no existing object was found", m.GetUID()))
		}
		if m.GetName() == "" {
			return nil, apierrors.NewBadRequest(fmt.Sprintf(
				"the name of the object (%s based on URL) was undeterminable: name must be provided", q.Name))
		}
	} else {
		old, err := meta.Accessor(before)
		if err != nil {
			return nil, err
		}
		if err := checkVersion(q, declared, old); err != nil {
			return nil, err
		}
		if m.GetResourceVersion() == "" {
			m.SetResourceVersion(old.GetResourceVersion())
		}
	}
	return obj, setNameAndNamespace(q, m)
}

// applyDeclared merges what a manager declares into live, which it may change.
func applyDeclared(
	q *request.Request,
	fields ownership.Merger,
	live runtime.Object,
	declared *unstructured.Unstructured,
	doubts []error,
) (runtime.Object, error) {
	obj, err := fields.Apply(live, declared.DeepCopy(), q.Query.Get("fieldManager"),
		request.BoolParameter(q.Query, "force"))
	if err != nil {
		return nil, request.AsInternalError(err) // unknown, duplicate or wrongly typed fields
	}
	for _, doubt := range doubts {
		switch q.Query.Get("fieldValidation") {
		case metav1.FieldValidationIgnore:
		case metav1.FieldValidationStrict:
			return nil, apierrors.NewBadRequest(fmt.Sprintf(
				"error strict decoding patch: error converting YAML to JSON: %v", doubt))
		default:
			q.Answer.WarnStrictError(doubt)
		}
	}
	return obj, nil
}
