package api

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxCauses is the maximum number of errors in a response. A client's object can have as many errors as bytes, and
// joining them into one message takes quadratic time.
const MaxCauses = 200

// Invalid returns the error response for an object with errs.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	if n := len(errs); n > MaxCauses {
		errs = append(errs[:MaxCauses:MaxCauses], field.TooMany(field.NewPath("errors"), n, MaxCauses))
	}
	return apierrors.NewInvalid(kind, name, errs)
}
