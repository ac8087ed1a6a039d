package validate

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IPAddress and CIDR reject addresses in forms that programs interpret differently, such as 010.0.0.1
// and 10.0.0.1/8. Values that the object had before are accepted, so that objects of older servers can still be changed
// and deleted.
func IPAddress(text string, at *field.Path, before ...string) field.ErrorList {
	return validation.IsValidIPForLegacyField(at, text, true, before)
}

func CIDR(text string, at *field.Path, before ...string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(at, text, true, before)
}
