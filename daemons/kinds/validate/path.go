package validate

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DescendingPath requires a relative path that does not leave its base directory.
func DescendingPath(p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, Backsteps(p, at)...)
}

// ProjectedPath requires a path within a volume that does not use a name reserved by the kubelet.
func ProjectedPath(p string, at *field.Path) field.ErrorList {
	errs := DescendingPath(p, at)
	if strings.HasPrefix(p, "..") && !strings.HasPrefix(p, "../") && p != ".." {
		errs = append(errs, field.Invalid(at, p, "must not start with '..'"))
	}
	return errs
}

func Backsteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}
