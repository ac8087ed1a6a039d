package kinds

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/podspec"
)

// RemoveOldAliasErrors removes the errors about host aliases whose address the object had in that form before. As with
// other addresses, the rest of objects from older servers can be changed then.
func RemoveOldAliasErrors(errs field.ErrorList, old runtime.Object) field.ErrorList {
	spec := podspec.SpecOf(old)
	if len(errs) == 0 || spec == nil {
		return errs
	}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		text, ok := e.BadValue.(string)
		return ok && strings.Contains(e.Field, ".hostAliases[") && strings.HasSuffix(e.Field, "].ip") &&
			slices.ContainsFunc(spec.HostAliases, func(a corev1.HostAlias) bool { return a.IP == text }) &&
			len(validation.IsValidIPForLegacyField(nil, text, false, nil)) == 0
	})
}
