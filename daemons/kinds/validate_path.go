package kinds

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateDescendingPath requires a relative path that does not leave its base directory.
func validateDescendingPath(p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, rejectBacksteps(p, at)...)
}

// validateProjectedPath requires a path within a volume that does not use a name reserved by the kubelet.
func validateProjectedPath(p string, at *field.Path) field.ErrorList {
	errs := validateDescendingPath(p, at)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") && p != ".." {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

func rejectBacksteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}
