package network

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func Endpoints() *kind.Kind {
	return &kind.Kind{
		GVK:        corev1.SchemeGroupVersion.WithKind("Endpoints"),
		Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		Resource:   "endpoints", Singular: "endpoints", ShortNames: []string{"ep"}, CreateOnUpdate: true,
		Namespaced: true, StorageKey: "services/endpoints", HasGeneration: false,
		New: kind.New[corev1.Endpoints](), NewList: kind.New[corev1.EndpointsList](),
		Default: kind.Adapt(func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					value.SetEmpty(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		}),
		Warnings: kind.AdaptWarnings(endpointsWarnings),
		Validate: kind.AdaptValidate(func(e *corev1.Endpoints) field.ErrorList {
			return validateEndpoints(e,
				nil)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(validateEndpoints),
		Columns:        kind.NewColumns("Endpoints", "Age"),
		Row: kind.AdaptRow(func(e *corev1.Endpoints) []any {
			return []any{endpointAddresses(e), cell.Age(e.CreationTimestamp)}
		}),
	}
}

// endpointAddresses lists the first few combinations of addresses and ports. There can be millions of them.
func endpointAddresses(e *corev1.Endpoints) string {
	const maximum = 3
	var list []string
	count := 0
	for _, s := range e.Subsets {
		count += len(s.Addresses) * max(1, len(s.Ports))
		for i := 0; i < max(1, len(s.Ports)) && len(list) < maximum; i++ {
			for _, a := range s.Addresses[:min(maximum-len(list), len(s.Addresses))] {
				text := a.IP
				if len(s.Ports) > 0 {
					text = net.JoinHostPort(a.IP, strconv.Itoa(int(s.Ports[i].Port)))
				}
				list = append(list, text)
			}
		}
	}
	text := cell.JoinLimited(list, maximum)
	if count > maximum {
		text += fmt.Sprintf(" + %d more...", count-maximum)
	}
	return text
}

func EndpointSlices() *kind.Kind {
	return &kind.Kind{
		GVK:      discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		Resource: "endpointslices", Singular: "endpointslice", Namespaced: true, HasGeneration: true,
		New: kind.New[discoveryv1.EndpointSlice](), NewList: kind.New[discoveryv1.EndpointSliceList](),
		Default: kind.Adapt(func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				value.SetDefault(&s.Ports[i].Name, "")
				value.SetDefault(&s.Ports[i].Protocol, corev1.ProtocolTCP)
			}
		}),
		Warnings:       kind.AdaptWarnings(endpointSliceWarnings),
		Validate:       kind.AdaptValidate(validateEndpointSlice),
		ValidateUpdate: kind.AdaptValidateUpdate(validateEndpointSliceUpdate),
		Columns:        kind.NewColumns("AddressType", "Ports", "Endpoints", "Age"),
		Row:            kind.AdaptRow(endpointSliceRow),
	}
}

func validateEndpointSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	var errs field.ErrorList
	types := []discoveryv1.AddressType{
		discoveryv1.AddressTypeFQDN,
		discoveryv1.AddressTypeIPv4,
		discoveryv1.AddressTypeIPv6,
	}
	path := field.NewPath("addressType")
	if s.AddressType == "" {
		errs = append(errs, field.Required(path, ""))
	} else if !slices.Contains(types, s.AddressType) {
		errs = append(errs, validate.NotSupported(path, s.AddressType, types))
	}
	if len(s.Endpoints) > 1000 {
		errs = append(errs, field.TooMany(field.NewPath("endpoints"), len(s.Endpoints), 1000))
	}
	for i, e := range s.Endpoints {
		errs = append(errs, validateEndpoint(&e, field.NewPath("endpoints").Index(i))...)
		at := field.NewPath("endpoints").Index(i).Child("addresses")
		if len(e.Addresses) == 0 {
			errs = append(errs, field.Required(at, "must contain at least 1 address"))
		} else if n := len(e.Addresses); n > 100 {
			errs = append(errs, field.TooMany(at, n, 100))
		}
		for j, a := range e.Addresses {
			ip := net.ParseIP(a)
			switch {
			case s.AddressType == discoveryv1.AddressTypeFQDN:
				errs = append(errs, validation.IsFullyQualifiedDomainName(at.Index(j), a)...)
			case s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6:
				// An unknown address type is reported as such; its addresses are not checked.
			case ip == nil || (ip.To4() != nil) != (s.AddressType == discoveryv1.AddressTypeIPv4):
				errs = append(errs, field.Invalid(at.Index(j), a, "must be an "+string(s.AddressType)+" address"))
			default:
				errs = append(errs, validateEndpointIP(a, at.Index(j))...)
			}
		}
	}
	seen := map[string]bool{}
	for i, p := range s.Ports {
		at := field.NewPath("ports").Index(i)
		if name := value.OrZero(p.Name); seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		} else {
			seen[name] = true
			if name != "" {
				for _, msg := range validation.IsDNS1123Label(name) {
					errs = append(errs, field.Invalid(at.Child("name"), name, msg))
				}
			}
		}
		errs = append(errs, validate.Protocol(value.OrZero(p.Protocol), at.Child("protocol"))...)
		if p.AppProtocol != nil {
			errs = append(errs, validate.Invalid(at.Child("appProtocol"), *p.AppProtocol,
				validation.IsQualifiedName(*p.AppProtocol))...)
		}
	}
	return errs
}

// validateEndpoint checks the fields of an endpoint other than its addresses.
func validateEndpoint(e *discoveryv1.Endpoint, path *field.Path) field.ErrorList {
	const maximum = 8 // maximum number of hints
	var errs field.ErrorList
	if e.NodeName != nil {
		errs = append(errs, validate.DNSSubdomain(*e.NodeName, path.Child("nodeName"))...)
	}
	if e.Hostname != nil {
		errs = append(errs, validate.DNSLabel(*e.Hostname, path.Child("hostname"))...)
	}
	if n := len(e.DeprecatedTopology); n > 16 {
		errs = append(errs, field.TooMany(path.Child("deprecatedTopology"), n, 16))
	}
	errs = append(errs, metavalidation.ValidateLabels(e.DeprecatedTopology, path.Child("deprecatedTopology"))...)
	if e.Hints == nil {
		return errs
	}
	hinted := func(names []string, path *field.Path) {
		if len(names) > maximum {
			errs = append(errs, field.TooMany(path, len(names), maximum))
		}
		again := validate.MarkRepeats(names)
		for i, name := range names {
			at := path.Index(i).Child("name")
			if again[i] {
				errs = append(errs, field.Duplicate(at, name))
			}
			errs = append(errs, validate.LabelValue(name, at)...)
			errs = append(errs, validate.Required(name, at, "")...)
		}
	}
	var zones, nodes []string
	for _, z := range e.Hints.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range e.Hints.ForNodes {
		nodes = append(nodes, n.Name)
	}
	hinted(zones, path.Child("hints", "forZones"))
	hinted(nodes, path.Child("hints", "forNodes"))
	return errs
}

func validateEndpointSliceUpdate(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := validateEndpointSlice(s)
	return append(errs, validate.Immutable(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
}

func endpointSliceRow(s *discoveryv1.EndpointSlice) []any {
	ports, addresses := "<unset>", []string{}
	if len(s.Ports) > 0 {
		list := []string{}
		for _, p := range s.Ports {
			switch {
			case p.Port != nil:
				list = append(list, strconv.Itoa(int(*p.Port)))
			default:
				list = append(list, "*")
			}
		}
		ports = cell.JoinLimited(list, 3)
	}
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	endpoints := "<unset>"
	if len(addresses) > 0 {
		endpoints = cell.JoinLimited(addresses, 3)
	}
	return []any{string(s.AddressType), ports, endpoints, cell.Age(s.CreationTimestamp)}
}
