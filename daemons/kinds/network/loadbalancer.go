package network

import (
	"net"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// validateBalancer checks the address of a load balancer.
func validateBalancer(ip, hostname string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ip != "" && net.ParseIP(ip) == nil {
		errs = append(
			errs,
			field.Invalid(at.Child("ip"), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)").
				WithOrigin("format=ip-sloppy"),
		)
	}
	if hostname != "" {
		errs = append(errs, validate.DNSSubdomain(hostname, at.Child("hostname"))...)
		if net.ParseIP(hostname) != nil {
			errs = append(errs, field.Invalid(at.Child("hostname"), hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}
