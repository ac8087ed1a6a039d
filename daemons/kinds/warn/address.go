package warn

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// Address and CIDR warn about addresses in forms that programs interpret differently. Invalid addresses are
// rejected elsewhere.
func Address(at *field.Path, text string) []string {
	if netutils.ParseIPSloppy(text) == nil {
		return nil
	}
	return validation.GetWarningsForIP(at, text)
}

func CIDR(at *field.Path, text string) []string {
	if _, _, err := netutils.ParseCIDRSloppy(text); err != nil {
		return nil
	}
	return validation.GetWarningsForCIDR(at, text)
}
