package api

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxCauses bounds how much of what is wrong is told: what a client sends can have as many faults as it has bytes, and
// to make one message of them takes time by their square.
const MaxCauses = 200

// Invalid refuses an object for what is wrong with it.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	if n := len(errs); n > MaxCauses {
		errs = append(errs[:MaxCauses:MaxCauses], field.TooMany(field.NewPath("errors"), n, MaxCauses))
	}
	return apierrors.NewInvalid(kind, name, errs)
}
