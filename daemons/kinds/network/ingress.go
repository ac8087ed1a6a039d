package network

import (
	"net"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	pathsegment "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func Ingresses() *kind.Kind {
	return &kind.Kind{
		GVK:      networkingv1.SchemeGroupVersion.WithKind("Ingress"),
		Resource: "ingresses", Singular: "ingress", ShortNames: []string{"ing"}, Namespaced: true,
		StorageKey: "ingress", HasGeneration: true,
		New: kind.New[networkingv1.Ingress](), NewList: kind.New[networkingv1.IngressList](),
		PrepareCreate: kind.Adapt(func(i *networkingv1.Ingress) { i.Status = networkingv1.IngressStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(func(i, old *networkingv1.Ingress) { i.Status = old.Status }),
		Warnings:      kind.AdaptWarnings(ingressWarnings),
		Validate:      kind.AdaptValidate(validateNewIngress), ValidateUpdate: kind.AdaptValidateUpdate(func(in,
			_ *networkingv1.Ingress) field.ErrorList {
			return validateIngress(in)
		}),
		Columns: kind.NewColumns("Class", "Hosts", "Address", "Ports", "Age"),
		Row:     kind.AdaptRow(ingressRow),
		Status: kind.NewStatus(func(to, from *networkingv1.Ingress) { to.Status = *from.Status.DeepCopy() },
			validateIngressStatus),
	}
}

func ingressRow(i *networkingv1.Ingress) []any {
	class := cell.NoneText
	if i.Spec.IngressClassName != nil {
		class = *i.Spec.IngressClassName
	} else if c := i.Annotations["kubernetes.io/ingress.class"]; c != "" {
		class = c
	}
	var hosts, addresses []string
	for _, r := range i.Spec.Rules {
		if r.Host != "" {
			hosts = append(hosts, r.Host)
		}
	}
	for _, in := range i.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			addresses = append(addresses, in.IP)
		} else if in.Hostname != "" {
			addresses = append(addresses, in.Hostname)
		}
	}
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	host := "*"
	if len(hosts) > 0 {
		host = cell.JoinLimited(hosts, 3)
	}
	return []any{class, host, strings.Join(addresses, ","), ports, cell.Age(i.CreationTimestamp)}
}

// validateNewIngress requires the class field and the deprecated annotation to agree.
func validateNewIngress(in *networkingv1.Ingress) field.ErrorList {
	errs := validateIngress(in)
	if old, ok := in.Annotations[oldIngressClass]; ok && in.Spec.IngressClassName != nil &&
		*in.Spec.IngressClassName != old {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(oldIngressClass), old,
			"must match `ingressClassName` when both are specified"))
	}
	return errs
}

func validateIngress(in *networkingv1.Ingress) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if len(in.Spec.Rules) == 0 && in.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, in.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if in.Spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(in.Spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for i, r := range in.Spec.Rules {
		at := path.Child("rules").Index(i)
		if host := r.Host; host != "" {
			if net.ParseIP(host) != nil {
				errs = append(errs, field.Invalid(at.Child("host"), host, "must be a DNS name, not an IP address"))
			}
			if strings.HasPrefix(host, "*.") {
				errs = append(errs,
					validate.Invalid(at.Child("host"), host, validation.IsWildcardDNS1123Subdomain(host))...)
			} else {
				errs = append(errs, validate.DNSSubdomain(host, at.Child("host"))...)
			}
		}
		if r.HTTP == nil {
			continue
		}
		if len(r.HTTP.Paths) == 0 {
			errs = append(errs, field.Required(at.Child("http", "paths"), ""))
		}
		for j, p := range r.HTTP.Paths {
			errs = append(errs, validateIngressPath(&p, at.Child("http", "paths").Index(j))...)
		}
	}
	if class := in.Spec.IngressClassName; class != nil {
		errs = append(errs, validate.DNSSubdomain(*class, path.Child("ingressClassName"))...)
	}
	for i, t := range in.Spec.TLS {
		if t.SecretName != "" {
			errs = append(errs, validate.DNSSubdomain(t.SecretName, path.Child("tls").Index(i).Child("secretName"))...)
		}
		for j, host := range t.Hosts {
			at := path.Child("tls").Index(i).Child("hosts").Index(j)
			if strings.HasPrefix(host, "*.") {
				errs = append(errs, validate.Invalid(at, host, validation.IsWildcardDNS1123Subdomain(host))...)
			} else {
				errs = append(errs, validate.DNSSubdomain(host, at)...)
			}
		}
	}
	return errs
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	types := []networkingv1.PathType{
		networkingv1.PathTypeExact,
		networkingv1.PathTypeImplementationSpecific,
		networkingv1.PathTypePrefix,
	}
	switch {
	case p.PathType == nil:
		errs = append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
	case !slices.Contains(types, *p.PathType):
		errs = append(errs, validate.NotSupported(at.Child("pathType"), *p.PathType, types))
	case *p.PathType != networkingv1.PathTypeImplementationSpecific || p.Path != "":
		if !strings.HasPrefix(p.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
		}
		if *p.PathType != networkingv1.PathTypeImplementationSpecific {
			errs = append(errs, validatePlainPath(p.Path, at.Child("path"))...)
		}
	}
	return append(errs, validateBackend(&p.Backend, at.Child("backend"))...)
}

// validatePlainPath rejects paths that servers and proxies interpret differently.
func validatePlainPath(text string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
		if strings.Contains(text, part) {
			errs = append(errs, field.Invalid(at, text, "must not contain '"+part+"'"))
		}
	}
	for _, end := range []string{"/..", "/."} {
		if strings.HasSuffix(text, end) {
			errs = append(errs, field.Invalid(at, text, "cannot end with '"+end+"'"))
		}
	}
	return errs
}

func validateBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		path := at.Child("resource")
		errs := append(validate.PathSegment(b.Resource.Kind, path.Child("kind")),
			validate.PathSegment(b.Resource.Name, path.Child("name"))...)
		if group := value.OrZero(b.Resource.APIGroup); group != "" {
			errs = append(errs, validate.DNSSubdomain(group, path.Child("apiGroup"))...)
		}
		return errs
	case b.Service == nil:
		return field.ErrorList{field.Required(at, "resource or service backend is required")}
	}
	var errs field.ErrorList
	s, path := b.Service, at.Child("service")
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, validate.Invalid(path.Child("name"), s.Name, validation.IsDNS1123Label(s.Name))...)
	}
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		errs = append(errs, validate.Invalid(path.Child("port", "name"), s.Port.Name,
			validation.IsValidPortName(s.Port.Name))...)
	case s.Port.Number != 0:
		errs = append(errs, validate.PortNumber(int(s.Port.Number), path.Child("port", "number"))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

func IngressClasses() *kind.Kind {
	return &kind.Kind{
		GVK:      networkingv1.SchemeGroupVersion.WithKind("IngressClass"),
		Resource: "ingressclasses", Singular: "ingressclass", HasGeneration: true,
		New: kind.New[networkingv1.IngressClass](), NewList: kind.New[networkingv1.IngressClassList](),
		Default: kind.Adapt(func(c *networkingv1.IngressClass) {
			if c.Spec.Parameters != nil {
				value.SetDefault(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		}),
		Validate: kind.AdaptValidate(validateIngressClass),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old *networkingv1.IngressClass) field.ErrorList {
			return append(validateIngressClass(c), validate.Immutable(c.Spec.Controller, old.Spec.Controller,
				field.NewPath("spec", "controller"))...)
		}),
		Columns: kind.NewColumns("Controller", "Parameters", "Age"),
		Row: kind.AdaptRow(func(c *networkingv1.IngressClass) []any {
			parameters := cell.NoneText
			if p := c.Spec.Parameters; p != nil {
				parameters = p.Kind
				if p.APIGroup != nil {
					parameters += "." + *p.APIGroup
				}
				parameters += "/" + p.Name
			}
			return []any{c.Spec.Controller, parameters, cell.Age(c.CreationTimestamp)}
		}),
	}
}

func validateIngressClass(c *networkingv1.IngressClass) field.ErrorList {
	const longest = 250
	path := field.NewPath("spec")
	var errs field.ErrorList
	if len(c.Spec.Controller) > longest {
		errs = append(errs, field.TooLong(path.Child("controller"), "", longest))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(path.Child("controller"), c.Spec.Controller)...)
	p := c.Spec.Parameters
	if p == nil {
		return errs
	}
	at := path.Child("parameters")
	if group := value.OrZero(p.APIGroup); group != "" {
		errs = append(errs, validate.DNSSubdomain(group, at.Child("apiGroup"))...)
	}
	for _, part := range []struct{ name, text string }{{"kind", p.Kind}, {"name", p.Name}} {
		if part.text == "" {
			errs = append(errs, field.Required(at.Child(part.name), part.name+" is required"))
			continue
		}
		errs = append(errs, validate.Invalid(at.Child(part.name), part.text,
			pathsegment.IsValidPathSegmentName(part.text))...)
	}
	scopes := []string{
		networkingv1.IngressClassParametersReferenceScopeCluster,
		networkingv1.IngressClassParametersReferenceScopeNamespace,
	}
	namespace := value.OrZero(p.Namespace)
	switch scope := value.OrZero(p.Scope); {
	case scope == "":
		errs = append(errs, field.Required(at.Child("scope"), ""))
	case !slices.Contains(scopes, scope):
		errs = append(errs, validate.NotSupported(at.Child("scope"), scope, scopes))
	case scope == networkingv1.IngressClassParametersReferenceScopeNamespace && p.Namespace == nil:
		errs = append(errs, field.Required(at.Child("namespace"), "`parameters.scope` is set to 'Namespace'"))
	case scope == networkingv1.IngressClassParametersReferenceScopeNamespace:
		errs = append(errs, validate.DNSLabel(namespace, at.Child("namespace"))...)
	case namespace != "":
		errs = append(errs, field.Forbidden(at.Child("namespace"), "`parameters.scope` is set to 'Cluster'"))
	}
	return errs
}

func validateIngressStatus(i, _ *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	for n, in := range i.Status.LoadBalancer.Ingress {
		errs = append(errs, validateBalancer(in.IP, in.Hostname,
			field.NewPath("status", "loadBalancer", "ingress").Index(n))...)
	}
	return errs
}
