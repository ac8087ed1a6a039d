package network

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"clusterctl/daemons/kinds/validate"
)

// validateEndpoints accepts invalid addresses that old already has. old is nil for new objects.
func validateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	before := subsetAddresses(old)
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for _, side := range []struct {
			name string
			list []corev1.EndpointAddress
		}{{"addresses", s.Addresses}, {"notReadyAddresses", s.NotReadyAddresses}} {
			for j, a := range side.list {
				errs = append(errs, validateEndpointAddress(a, before, at.Child(side.name).Index(j))...)
			}
		}
		for j, p := range s.Ports {
			where := at.Child("ports").Index(j)
			switch {
			case p.Name == "" && len(s.Ports) > 1:
				errs = append(errs, field.Required(where.Child("name"), ""))
			case p.Name != "":
				errs = append(errs, validate.DNSLabel(p.Name, where.Child("name"))...)
			}
			errs = append(errs, validate.PortNumber(int(p.Port), where.Child("port"))...)
			errs = append(errs, validate.Protocol(p.Protocol, where.Child("protocol"))...)
			if p.AppProtocol != nil {
				errs = append(errs, validate.Invalid(where.Child("appProtocol"), *p.AppProtocol,
					validation.IsQualifiedName(*p.AppProtocol))...)
			}
		}
	}
	return errs
}

func validateEndpointAddress(a corev1.EndpointAddress, before []string, at *field.Path) field.ErrorList {
	errs := validateEndpointIP(a.IP, at.Child("ip"), before...)
	if a.Hostname != "" {
		errs = append(errs, validate.DNSLabel(a.Hostname, at.Child("hostname"))...)
	}
	if a.NodeName != nil {
		errs = append(errs, validate.DNSSubdomain(*a.NodeName, at.Child("nodeName"))...)
	}
	return errs
}

// validateEndpointIP rejects addresses to which traffic must not be sent: loopback and link-local ones.
func validateEndpointIP(text string, at *field.Path, before ...string) field.ErrorList {
	errs := validate.IPAddress(text, at, before...)
	ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	if !ok || len(errs) > 0 || slices.Contains(before, text) {
		return errs
	}
	ip = ip.Unmap()
	for _, bad := range []struct {
		matches bool
		text    string
	}{
		{ip.IsUnspecified(), "may not be unspecified (0.0.0.0 or ::)"},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		if bad.matches {
			return field.ErrorList{field.Invalid(at, text, bad.text)}
		}
	}
	return nil
}

func subsetAddresses(e *corev1.Endpoints) []string {
	var all []string
	if e == nil {
		return nil
	}
	for _, s := range e.Subsets {
		for _, list := range [][]corev1.EndpointAddress{s.Addresses, s.NotReadyAddresses} {
			for _, a := range list {
				all = append(all, a.IP)
			}
		}
	}
	return all
}
