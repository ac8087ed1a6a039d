package apiserver

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

// boolParameter returns a parameter as the API reads booleans. It is false if the parameter is absent, "0" or "false".
// Any other value is true, and so is an empty one.
func boolParameter(query url.Values, name string) bool {
	values := query[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

// optionalBool is like truth, but returns nil if the parameter is absent.
func optionalBool(query url.Values, name string) *bool {
	if len(query[name]) == 0 {
		return nil
	}
	v := boolParameter(query, name)
	return &v
}

// invalidOptions returns the error for invalid options of a kind. It returns nil without errs.
func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// writeOptions validates the query parameters of a write.
func (q *request) writeOptions() error {
	manager, dry, fields := q.query.Get("fieldManager"), q.query["dryRun"], q.query.Get("fieldValidation")
	switch q.Verb {
	case "create":
		return invalidOptions(
			"CreateOptions",
			validation.ValidateCreateOptions(
				&metav1.CreateOptions{FieldManager: manager, DryRun: dry, FieldValidation: fields},
			),
		)
	case "update":
		return invalidOptions(
			"UpdateOptions",
			validation.ValidateUpdateOptions(
				&metav1.UpdateOptions{FieldManager: manager, DryRun: dry, FieldValidation: fields},
			),
		)
	case "patch":
		if !isKnownPatch(q.patchType()) {
			return nil // readPatch reports the unknown type first
		}
		o := &metav1.PatchOptions{
			FieldManager:    manager,
			DryRun:          dry,
			FieldValidation: fields,
			Force:           optionalBool(q.query, "force"),
		}
		return invalidOptions("PatchOptions", validation.ValidatePatchOptions(o, q.patchType()))
	}
	return nil
}

// responseTimeout returns how long the client waits for the response: its timeout parameter, but at most most.
func (q *request) responseTimeout(most time.Duration) (time.Duration, error) {
	asked := q.query.Get("timeout")
	if asked == "" {
		return most, nil
	}
	patience, err := time.ParseDuration(asked)
	if err != nil {
		return most, apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
	}
	if patience <= 0 {
		return most, nil
	}
	return min(patience, most), nil
}

// patchType returns the media type of a patch's body.
func (q *request) patchType() types.PatchType {
	kind, _, err := mime.ParseMediaType(q.http.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return types.PatchType(kind)
}

// listOptions parses and validates the query parameters of a list, a watch or a collection deletion. Only the watch
// parameter makes it validate a watch. Like upstream, it treats a path below /watch/ as a list.
func (q *request) listOptions() (metav1.ListOptions, error) {
	var o metav1.ListOptions
	if len(q.query) == 0 {
		return o, nil
	}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&q.query, &o, nil); err != nil {
		return o, apierrors.NewBadRequest(err.Error())
	}
	checked := &internalversion.ListOptions{
		Watch: o.Watch, ResourceVersion: o.ResourceVersion, Continue: o.Continue,
		ResourceVersionMatch: o.ResourceVersionMatch, SendInitialEvents: o.SendInitialEvents,
	}
	internalversion.SetListOptionsDefaults(checked, true)
	o.ResourceVersionMatch, o.SendInitialEvents = checked.ResourceVersionMatch, checked.SendInitialEvents
	return o, invalidOptions("ListOptions", listvalidation.ValidateListOptions(checked, true))
}

// tableOptions validates the query parameters for tables.
func (q *request) tableOptions() error {
	if q.media.Shape != "Table" || len(q.query["includeObject"]) == 0 {
		return nil
	}
	errs := validation.ValidateTableOptions(&metav1.TableOptions{IncludeObject: includeObject(q)})
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewBadRequest("Unable to convert to Table as requested: " + errs[0].Error())
}
