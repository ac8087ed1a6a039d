package write

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/jsonpatch"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/kinds/quantity"
)

// maxOperations is the most operations that a JSON patch may have.
const maxOperations = 10000

// patchTypes are the supported content types of patches, as listed in Accept-Patch.
const patchTypes = "application/json-patch+json, application/merge-patch+json, " +
	"application/strategic-merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor"

const untypedPatchTypes = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, " +
	"application/apply-patch+cbor"

func unsupportedPatch(q *request.Request, supported string) error {
	q.Answer.Header().Set("Accept-Patch", supported)
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + supported,
	}}
}

// readPatch reads the body of a patch, and converts YAML and CBOR to JSON.
func readPatch(q *request.Request) (types.PatchType, []byte, []error, error) {
	patchType := q.PatchType()
	switch patchType {
	case types.JSONPatchType, types.MergePatchType, types.ApplyPatchType, types.ApplyCBORPatchType:
	case types.StrategicMergePatchType:
		// Go types define how lists merge, and custom resources have none.
		if q.Served.Untyped != nil && q.Subresource != "scale" {
			return "", nil, nil, unsupportedPatch(q, untypedPatchTypes)
		}
	default:
		return "", nil, nil, unsupportedPatch(q, patchTypes)
	}
	data, err := body.Read(q.HTTP, nil)
	if err != nil {
		return "", nil, nil, fmt.Errorf("read the patch: %w", err)
	}
	var doubts []error
	switch patchType {
	case types.ApplyPatchType:
		if err = body.ReserveConvertedParts(q, data); err != nil {
			return "", nil, nil, err
		}
		if data, doubts, err = body.FromYAML(data); err != nil && !apierrors.IsRequestEntityTooLargeError(err) {
			err = apierrors.NewBadRequest(fmt.Sprintf("error encoding patch: %v", err))
		}
	case types.ApplyCBORPatchType:
		patchType = types.ApplyPatchType
		if err = body.ReserveConvertedParts(q, data); err != nil {
			return "", nil, nil, err
		}
		data, err = body.FromCBOR(data)
	}
	if err != nil {
		return "", nil, nil, err
	}
	return patchType, data, doubts, body.ReserveParts(q, body.CountJSONParts(data))
}

// Patch changes an object, or its status, as the patch in the request describes.
func (s *Writes) Patch(q *request.Request) error {
	w, err := s.newWrite(q)
	if err != nil {
		return err
	}
	patchType, data, doubts, err := readPatch(q)
	if err != nil {
		return err
	}
	created := false
	next := func(live runtime.Object) (runtime.Object, error) {
		if live == nil {
			return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
		}
		return patchObject(q, w.attempt.live, patchType, data)
	}
	if w.isApply = patchType == types.ApplyPatchType; w.isApply {
		declared, err := decodeDeclared(data)
		if err == nil {
			err = checkDeclared(q, data)
		}
		if err != nil {
			return err
		}
		next = func(live runtime.Object) (runtime.Object, error) {
			created = live == nil
			return s.mergeDeclared(q, live, declared, doubts)
		}
	}
	e, err := w.modify(q.HTTP.Context(), next)
	switch {
	case err != nil && !json.Valid(data):
		return apierrors.NewBadRequest("invalid JSON patch") // takes precedence over any other error
	case err != nil:
		return err
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return q.WriteEntry(code, e)
}

// patchObject returns the live object after a JSON, merge or strategic merge patch.
func patchObject(
	q *request.Request,
	live liveState,
	patchType types.PatchType,
	patch []byte,
) (runtime.Object, error) {
	before, err := q.Served.AppendJSON(nil, live.converted)
	if err != nil {
		return nil, fmt.Errorf("encode the %s to patch: %w", q.Served.GVK.Kind, err)
	}
	doubts, err := patchStrictErrors(q, patch, patchType)
	if err != nil {
		return nil, err
	}
	after, err := applyPatch(before, patch, patchType, q.Served.NewObject())
	if err != nil {
		return nil, err
	}
	obj := q.Served.NewObject()
	if err := decodePatched(q, patchType, patch, after, q.Served.Version(), obj, doubts); err != nil {
		return nil, err
	}
	hub, err := q.Served.ToStored(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	sent, err := meta.Accessor(hub)
	if err != nil {
		return nil, err
	}
	stored, err := meta.Accessor(live.obj)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(q, sent, stored); err != nil {
		return nil, err
	}
	return hub, setNameAndNamespace(q, sent)
}

// decodePatched decodes an object after a patch. A strategic merge works on typed values, so the kind in its result is
// not checked.
func decodePatched(
	q *request.Request,
	patchType types.PatchType,
	patch, after []byte,
	gvk schema.GroupVersionKind,
	obj runtime.Object,
	doubts []error,
) error {
	if patchType != types.StrategicMergePatchType {
		return invalidPatch(string(after), body.DecodeJSON(q, after, gvk, obj, doubts))
	}
	if err := body.DecodeJSON(q, after, schema.GroupVersionKind{}, obj, doubts); err != nil {
		return invalidStrategicPatch(patch, after, obj, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// patchStrictErrors returns what strict decoding would refuse in the patch itself.
func patchStrictErrors(q *request.Request, patch []byte, patchType types.PatchType) (doubts []error, err error) {
	if q.Query.Get("fieldValidation") == metav1.FieldValidationIgnore {
		return nil, nil
	}
	if patchType != types.JSONPatchType {
		var v map[string]any
		doubts, err = kjson.UnmarshalStrict(patch, &v)
		switch {
		case err != nil && patchType == types.StrategicMergePatchType:
			err = apierrors.NewBadRequest(err.Error())
		case err != nil:
			err = apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		return doubts, err
	}
	var operations []struct {
		Op    string `json:"op"`
		From  string `json:"from,omitempty"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	if doubts, err = kjson.UnmarshalStrict(patch, &operations); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	for i, doubt := range doubts {
		doubts[i] = fmt.Errorf("json patch %w", doubt)
	}
	return doubts, nil
}

// invalidPatch returns the error for a patch whose result is not a valid object.
func invalidPatch(what string, err error) error {
	var bad *body.Error
	if !errors.As(err, &bad) {
		return err
	}
	const shown = 1 << 10
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), what[:min(len(what), shown)], bad.Cause.Error())})
}

// invalidStrategicPatch is invalidPatch for a strategic merge patch. The error shows only the patch. Its cause is the
// error of converting the resulting values to the typed object.
func invalidStrategicPatch(patch, after []byte, typed runtime.Object, err error) error {
	var change, object map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(patch, &change) != nil ||
		kjson.UnmarshalCaseSensitivePreserveInts(after, &object) != nil {
		return err
	}
	var bad *body.Error
	if errors.As(err, &bad) && errors.Is(bad.Cause, quantity.Err) {
		return invalidPatch(fmt.Sprintf("%+v", change), err)
	}
	if convertErr := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); convertErr != nil {
		err = &body.Error{Cause: convertErr}
	}
	return invalidPatch(fmt.Sprintf("%+v", change), err)
}

// malformedPatchErrors lists the errors of a strategic merge that concern the patch alone.
var malformedPatchErrors = []error{
	mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
	mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat,
}

// unmergeablePatchErrors lists the errors of a strategic merge that concern the patch together with the object.
var unmergeablePatchErrors = []error{mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys}

// applyPatch returns the JSON of a document after a patch. typed is an empty object of the document's type; a strategic
// merge follows its tags.
func applyPatch(before, patch []byte, patchType types.PatchType, typed runtime.Object) ([]byte, error) {
	switch patchType {
	case types.JSONPatchType:
		operations, err := jsonpatch.Decode(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if len(operations) > maxOperations {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
				"The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(operations)))
		}
		if bytes.ContainsAny(before, "<>&") {
			// The "test" operation compares text, and clients written in Go escape HTML characters.
			var escaped bytes.Buffer
			json.HTMLEscape(&escaped, before)
			before = escaped.Bytes()
		}
		if err := checkListWork(len(operations), listSizesOf(before).longest+listSizesOf(patch).longest+
			len(operations), maxListMoves); err != nil {
			return nil, err
		}
		after, err := jsonpatch.Apply(operations, before)
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{},
				"", err.Error(), 0, false)
		}
		return after, nil
	case types.MergePatchType:
		return mergePatch(before, patch)
	case types.StrategicMergePatchType:
		sizes := listSizesOf(patch)
		if err := checkListWork(sizes.items, max(sizes.longest, listSizesOf(before).longest),
			maxListComparisons); err != nil {
			return nil, err
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch, typed)
		switch {
		case slices.Contains(malformedPatchErrors, err):
			return nil, apierrors.NewBadRequest(err.Error())
		case slices.Contains(unmergeablePatchErrors, err):
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{},
				"", err.Error(), 0, false)
		}
		return after, request.AsInternalError(err)
	}
	return nil, body.UnsupportedMediaType()
}
