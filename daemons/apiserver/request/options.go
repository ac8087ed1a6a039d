package request

import (
	"mime"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Query parameters are validated as the options object that they represent. The error names that object's kind, and has
// a cause for each field.

// BoolParameter returns a parameter as the API reads booleans. It is false if the parameter is absent, "0" or "false".
// Any other value is true, and so is an empty one.
func BoolParameter(query url.Values, name string) bool {
	values := query[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// OptionalBool is like BoolParameter, but returns nil if the parameter is absent.
func OptionalBool(query url.Values, name string) *bool {
	if len(query[name]) == 0 {
		return nil
	}
	v := BoolParameter(query, name)
	return &v
}

// InvalidOptions returns the error for invalid options of a kind. It returns nil without errs.
func InvalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// WriteOptions validates the query parameters of a write.
func (q *Request) WriteOptions() error {
	manager, dry, fields := q.Query.Get("fieldManager"), q.Query["dryRun"], q.Query.Get("fieldValidation")
	switch q.Verb {
	case "create":
		return InvalidOptions(
			"CreateOptions",
			validation.ValidateCreateOptions(
				&metav1.CreateOptions{FieldManager: manager, DryRun: dry, FieldValidation: fields},
			),
		)
	case "update":
		return InvalidOptions(
			"UpdateOptions",
			validation.ValidateUpdateOptions(
				&metav1.UpdateOptions{FieldManager: manager, DryRun: dry, FieldValidation: fields},
			),
		)
	case "patch":
		if !IsKnownPatch(q.PatchType()) {
			return nil // readPatch reports the unknown type first
		}
		o := &metav1.PatchOptions{
			FieldManager:    manager,
			DryRun:          dry,
			FieldValidation: fields,
			Force:           OptionalBool(q.Query, "force"),
		}
		return InvalidOptions("PatchOptions", validation.ValidatePatchOptions(o, q.PatchType()))
	}
	return nil
}

// ResponseTimeout returns how long the client waits for the response: its timeout parameter, but at most maximum.
func (q *Request) ResponseTimeout(maximum time.Duration) (time.Duration, error) {
	requested := q.Query.Get("timeout")
	if requested == "" {
		return maximum, nil
	}
	timeout, err := time.ParseDuration(requested)
	if err != nil {
		return maximum, apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
	}
	if timeout <= 0 {
		return maximum, nil
	}
	return min(timeout, maximum), nil
}

// PatchType returns the media type of a patch's body.
func (q *Request) PatchType() types.PatchType {
	kind, _, err := mime.ParseMediaType(q.HTTP.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return types.PatchType(kind)
}

// ListOptions parses and validates the query parameters of a list, a watch or a collection deletion. Only the watch
// parameter makes it validate a watch. Like upstream, it treats a path below /watch/ as a list.
func (q *Request) ListOptions() (metav1.ListOptions, error) {
	var o metav1.ListOptions
	if len(q.Query) == 0 {
		return o, nil
	}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&q.Query, &o, nil); err != nil {
		return o, apierrors.NewBadRequest(err.Error())
	}
	checked := &internalversion.ListOptions{
		Watch: o.Watch, ResourceVersion: o.ResourceVersion, Continue: o.Continue,
		ResourceVersionMatch: o.ResourceVersionMatch, SendInitialEvents: o.SendInitialEvents,
	}
	internalversion.SetListOptionsDefaults(checked, true)
	o.ResourceVersionMatch, o.SendInitialEvents = checked.ResourceVersionMatch, checked.SendInitialEvents
	return o, InvalidOptions("ListOptions", listvalidation.ValidateListOptions(checked, true))
}

// TableOptions validates the query parameters for tables.
func (q *Request) TableOptions() error {
	if q.Media.Shape != "Table" || len(q.Query["includeObject"]) == 0 {
		return nil
	}
	errs := validation.ValidateTableOptions(&metav1.TableOptions{IncludeObject: q.IncludeObject()})
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs[0].Error())
}

// IncludeObject returns how much of each object the rows of a table include.
func (q *Request) IncludeObject() metav1.IncludeObjectPolicy {
	if p := metav1.IncludeObjectPolicy(q.Query.Get("includeObject")); p != "" {
		return p
	}
	return metav1.IncludeMetadata
}

// IsKnownPatch reports whether some kinds support a patch type.
func IsKnownPatch(t types.PatchType) bool {
	switch t {
	case types.JSONPatchType,
		types.MergePatchType,
		types.ApplyPatchType,
		types.ApplyCBORPatchType,
		types.StrategicMergePatchType:
		return true
	}
	return false
}
