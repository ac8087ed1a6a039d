package body

import (
	"encoding/hex"
	"fmt"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"clusterctl/daemons/apiserver/request"
)

// This file builds the errors for a body that is not an object of the requested kind. The messages are upstream's,
// without the position in upstream's code.

// Error is the error for bytes that cannot be decoded as a kind.
type Error struct {
	actual   schema.GroupVersionKind // the kind that the bytes name
	expected string                  // the expected kind
	data     []byte                  // the bytes, if they name no kind
	Cause    error                   // why the bytes cannot be decoded
}

func newDecodeError(gvk schema.GroupVersionKind, err error) error {
	return &Error{actual: gvk, expected: gvk.Kind, Cause: err}
}

// unrecognizedKind returns the error for data that name no kind.
func unrecognizedKind(data []byte, gvk schema.GroupVersionKind, err error) error {
	return &Error{expected: gvk.Kind, data: data, Cause: err}
}

// Error implements error.
func (u *Error) Error() string {
	if u.actual.Kind != "" {
		return fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", u.actual.Kind, u.actual.Version,
			u.expected, u.Cause)
	}
	if u.expected == "" { // delete options and the like
		return u.Cause.Error()
	}
	const shown = 30
	begin, more := u.data, ""
	if len(begin) > shown {
		begin, more = begin[:shown], " ..."
	}
	text := hex.EncodeToString(begin)
	switch {
	case len(begin) == 0:
		text = "<empty>"
	case begin[0] == '{':
		text = string(begin)
	}
	return fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s%s)", u.expected, u.Cause, text,
		more)
}

// Status implements APIStatus.
func (u *Error) Status() metav1.Status { return apierrors.NewBadRequest(u.Error()).ErrStatus }

// checkKind returns an error if the decoded object is of another kind, or if decoding failed. Another kind takes
// precedence.
func checkKind(data []byte, gvk schema.GroupVersionKind, obj runtime.Object, failed error) error {
	version, kind := obj.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	typeMeta := metav1.TypeMeta{APIVersion: version, Kind: kind}
	if failed != nil || version == "" && !gvk.Empty() { // data may be no object at all
		named, err := json.DefaultMetaFactory.Interpret(data)
		if err != nil {
			return unrecognizedKind(data, gvk, err)
		}
		typeMeta.APIVersion, typeMeta.Kind = named.ToAPIVersionAndKind()
	}
	if err := checkTypeMeta(typeMeta, gvk, data); err != nil {
		return err
	}
	if failed != nil {
		return newDecodeError(gvk, failed)
	}
	return nil
}

// acceptedOldVersions maps kinds to an older version that clients still send, with the same fields. kubectl sends
// evictions in the version that it was built with.
var acceptedOldVersions = map[schema.GroupVersionKind]string{
	policyv1.SchemeGroupVersion.WithKind("Eviction"): "policy/v1beta1",
}

// checkTypeMeta returns an error unless an object's kind and version are the expected ones. An empty gvk accepts
// everything, because options have a kind in every group.
func checkTypeMeta(typeMeta metav1.TypeMeta, gvk schema.GroupVersionKind, data []byte) error {
	if gvk.Empty() {
		return nil
	}
	version, kind := gvk.ToAPIVersionAndKind()
	right := typeMeta.APIVersion == "" || typeMeta.APIVersion == version ||
		typeMeta.APIVersion == acceptedOldVersions[gvk]
	if right && (typeMeta.Kind == "" || typeMeta.Kind == kind) {
		return nil
	}
	named := gvk
	if typeMeta.Kind != "" {
		named.Kind = typeMeta.Kind
	}
	if typeMeta.APIVersion != "" {
		gv, err := schema.ParseGroupVersion(typeMeta.APIVersion)
		if err != nil {
			return unrecognizedKind(data, gvk, err)
		}
		named.Group, named.Version = gv.Group, gv.Version
	}
	return wrongKind(named, gvk)
}

// wrongKind returns the error for an object of another kind or version.
func wrongKind(gvk, want schema.GroupVersionKind) error {
	builtIn := request.BuiltInKinds()
	other := builtIn[gvk]
	switch {
	case gvk.GroupKind() == want.GroupKind(), other != nil && other == builtIn[want]:
		return wrongVersion(gvk, want)
	case other != nil:
		return &Error{
			actual:   gvk,
			expected: want.Kind,
			Cause: fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", gvk.Version, gvk.Kind,
				internalVersion(want.Group), want.Kind),
		}
	}
	return &Error{
		actual:   gvk,
		expected: want.Kind,
		Cause:    fmt.Errorf("no kind %q is registered for version %q", gvk.Kind, gvk.GroupVersion()),
	}
}

func wrongVersion(gvk, want schema.GroupVersionKind) error {
	return apierrors.NewBadRequest(fmt.Sprintf(
		"the API version in the data (%s) does not match the expected API version (%s)", gvk.GroupVersion(),
		want.GroupVersion()))
}

// internalVersion returns upstream's name of a group's internal version.
func internalVersion(group string) string {
	switch name, _, _ := strings.Cut(group, "."); name {
	case "", "events":
		return "core"
	default:
		return name
	}
}
