package network

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func NetworkPolicies() *kind.Kind {
	return &kind.Kind{
		GVK:      networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		Resource: "networkpolicies", Singular: "networkpolicy", ShortNames: []string{"netpol"}, Namespaced: true,
		HasGeneration: true,
		New:           kind.New[networkingv1.NetworkPolicy](), NewList: kind.New[networkingv1.NetworkPolicyList](),
		Default:  kind.Adapt(defaultNetworkPolicy),
		Warnings: kind.AdaptWarnings(networkPolicyWarnings),
		Validate: kind.AdaptValidate(
			func(p *networkingv1.NetworkPolicy) field.ErrorList { return validateNetworkPolicy(p, nil) },
		),
		ValidateUpdate: kind.AdaptValidateUpdate(validateNetworkPolicy),
		Columns:        kind.NewColumns("Pod-Selector", "Age"),
		Row: kind.AdaptRow(func(p *networkingv1.NetworkPolicy) []any {
			return []any{cell.SelectorText(&p.Spec.PodSelector), cell.Age(p.CreationTimestamp)}
		}),
	}
}

func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	ports := func(list []networkingv1.NetworkPolicyPort) {
		for i := range list {
			value.SetDefault(&list[i].Protocol, corev1.ProtocolTCP)
		}
	}
	for i := range p.Spec.Ingress {
		ports(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		ports(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

// maxPolicyRules limits the packet rules that every node with a pod of the namespace needs for a policy.
const maxPolicyRules = 10_000

// countPolicyRules returns the number of combinations of peers and ports in a policy.
func countPolicyRules(p *networkingv1.NetworkPolicy) (n int) {
	if p == nil {
		return 0
	}
	for _, r := range p.Spec.Ingress {
		n += max(len(r.From), 1) * max(len(r.Ports), 1)
	}
	for _, r := range p.Spec.Egress {
		n += max(len(r.To), 1) * max(len(r.Ports), 1)
	}
	return n
}

// validateNetworkPolicy accepts invalid ranges, and as many rules, as old already has.
func validateNetworkPolicy(p, old *networkingv1.NetworkPolicy) field.ErrorList {
	before := blocksOf(old)
	path := field.NewPath("spec")
	errs := metavalidation.ValidateLabelSelector(&p.Spec.PodSelector, metavalidation.LabelSelectorValidationOptions{},
		path.Child("podSelector"))
	if n := countPolicyRules(p); n > maxPolicyRules && n > countPolicyRules(old) {
		return append(errs, field.Forbidden(path, fmt.Sprintf("its rules have %d combinations of peers and ports; "+
			"nodes have packet rules for each, and at most %d are allowed", n, maxPolicyRules)))
	}
	for i, r := range p.Spec.Ingress {
		at := path.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(r.Ports, at.Child("ports"))...)
		errs = append(errs, validatePeers(r.From, before, at.Child("from"))...)
	}
	for i, r := range p.Spec.Egress {
		at := path.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(r.Ports, at.Child("ports"))...)
		errs = append(errs, validatePeers(r.To, before, at.Child("to"))...)
	}
	if len(p.Spec.PolicyTypes) > 2 {
		return append(errs, field.Invalid(path.Child("policyTypes"), p.Spec.PolicyTypes,
			"may not specify more than two policyTypes"))
	}
	for i, t := range p.Spec.PolicyTypes {
		errs = append(errs, validate.Supported(t,
			[]networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress},
			path.Child("policyTypes").Index(i))...)
	}
	return errs
}

func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		at := path.Index(i)
		errs = append(errs, validate.Protocol(value.OrZero(p.Protocol), at.Child("protocol"))...)
		switch {
		case p.Port == nil && p.EndPort != nil:
			errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort,
				"may not be specified when `port` is not specified"))
		case p.Port == nil:
		case p.Port.Type == intstr.Int:
			errs = append(errs, validate.PortNumber(int(p.Port.IntVal), at.Child("port"))...)
			if p.EndPort != nil {
				errs = append(errs, validate.PortNumber(int(*p.EndPort), at.Child("endPort"))...)
				if *p.EndPort < p.Port.IntVal {
					errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort,
						"must be greater than or equal to `port`"))
				}
			}
		default:
			if p.EndPort != nil {
				errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort,
					"may not be specified when `port` is non-numeric"))
			}
			errs = append(errs,
				validate.Invalid(at.Child("port"), p.Port.StrVal, validation.IsValidPortName(p.Port.StrVal))...)
		}
	}
	return errs
}

func validatePeers(peers []networkingv1.NetworkPolicyPeer, before []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range peers {
		at := path.Index(i)
		selects := p.PodSelector != nil || p.NamespaceSelector != nil
		errs = append(errs, metavalidation.ValidateLabelSelector(p.PodSelector,
			metavalidation.LabelSelectorValidationOptions{}, at.Child("podSelector"))...)
		errs = append(errs, metavalidation.ValidateLabelSelector(p.NamespaceSelector,
			metavalidation.LabelSelectorValidationOptions{}, at.Child("namespaceSelector"))...)
		switch {
		case p.IPBlock != nil && selects:
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		case p.IPBlock == nil && !selects:
			errs = append(errs, field.Required(at, "must specify a peer"))
		case p.IPBlock != nil:
			errs = append(errs, validateBlock(p.IPBlock, before, at.Child("ipBlock"))...)
		}
	}
	return errs
}

func validateBlock(b *networkingv1.IPBlock, before []string, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(at.Child("cidr"), "")}
	}
	errs := validate.CIDR(b.CIDR, at.Child("cidr"), before...)
	_, block, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs // the errors report it
	}
	outer, _ := block.Mask.Size()
	for i, except := range b.Except {
		where := at.Child("except").Index(i)
		errs = append(errs, validate.CIDR(except, where, before...)...)
		_, inner, err := netutils.ParseCIDRSloppy(except)
		if err != nil {
			continue
		}
		if bits, _ := inner.Mask.Size(); !block.Contains(inner.IP) || bits <= outer {
			errs = append(errs, field.Invalid(where, except, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}

func IPAddresses() *kind.Kind {
	return &kind.Kind{
		GVK:      networkingv1.SchemeGroupVersion.WithKind("IPAddress"),
		Resource: "ipaddresses", Singular: "ipaddress", ShortNames: []string{"ip"},
		New: kind.New[networkingv1.IPAddress](), NewList: kind.New[networkingv1.IPAddressList](),
		NameErrors: func(name string, prefix bool) []string {
			if a, err := netip.ParseAddr(name); err != nil || a.String() != name {
				return []string{"must be a valid IP address in canonical form"}
			}
			return nil
		},
		Validate: kind.AdaptValidate(func(a *networkingv1.IPAddress) field.ErrorList {
			ref, path := a.Spec.ParentRef, field.NewPath("spec", "parentRef")
			if ref == nil {
				return field.ErrorList{field.Required(path, "")}
			}
			var errs field.ErrorList
			if ref.Resource == "" {
				errs = append(errs, field.Required(path.Child("resource"), ""))
			}
			if ref.Name == "" {
				errs = append(errs, field.Required(path.Child("name"), ""))
			}
			return errs
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(a, old *networkingv1.IPAddress) field.ErrorList {
			return validate.Immutable(a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"))
		}),
		Fields: kind.AdaptFields(func(a *networkingv1.IPAddress) fields.Set {
			if a.Spec.ParentRef == nil {
				return nil
			}
			return fields.Set{
				"spec.parentRef.group": a.Spec.ParentRef.Group, "spec.parentRef.resource": a.Spec.ParentRef.Resource,
				"spec.parentRef.namespace": a.Spec.ParentRef.Namespace, "spec.parentRef.name": a.Spec.ParentRef.Name,
			}
		}),
		Columns: kind.NewColumns("ParentRef", "Age"),
		Row: kind.AdaptRow(func(a *networkingv1.IPAddress) []any {
			parent := cell.NoneText
			if r := a.Spec.ParentRef; r != nil {
				parent = strings.TrimPrefix(r.Group+"/"+r.Resource+"/"+r.Namespace+"/"+r.Name, "/")
			}
			return []any{parent, cell.Age(a.CreationTimestamp)}
		}),
	}
}

func ServiceCIDRs() *kind.Kind {
	return &kind.Kind{
		GVK:      networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
		Resource: "servicecidrs", Singular: "servicecidr",
		New: kind.New[networkingv1.ServiceCIDR](), NewList: kind.New[networkingv1.ServiceCIDRList](),
		PrepareCreate:  kind.Adapt(func(c *networkingv1.ServiceCIDR) { c.Status = networkingv1.ServiceCIDRStatus{} }),
		PrepareUpdate:  kind.AdaptUpdate(func(c, old *networkingv1.ServiceCIDR) { c.Status = old.Status }),
		Validate:       kind.AdaptValidate(validateServiceCIDR),
		ValidateUpdate: kind.AdaptValidateUpdate(validateServiceCIDRUpdate),
		Columns:        kind.NewColumns("CIDRs", "Age"),
		Row: kind.AdaptRow(func(c *networkingv1.ServiceCIDR) []any {
			return []any{strings.Join(c.Spec.CIDRs, ","), cell.Age(c.CreationTimestamp)}
		}),
		Status: kind.NewStatus(func(to, from *networkingv1.ServiceCIDR) { to.Status = *from.Status.DeepCopy() }),
	}
}

// validateServiceCIDR requires one range, or one of each family.
func validateServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	path, list := field.NewPath("spec", "cidrs"), c.Spec.CIDRs
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case len(list) > 2:
		return field.ErrorList{field.Invalid(path, c.Spec, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	families := map[bool]bool{}
	for i, cidr := range list {
		p, err := netip.ParsePrefix(cidr)
		if err != nil || p.Masked() != p {
			errs = append(errs, field.Invalid(path.Index(i), cidr,
				"must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
			continue
		}
		if families[p.Addr().Is4()] {
			return field.ErrorList{
				field.Invalid(path, c.Spec,
					"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"),
			}
		}
		families[p.Addr().Is4()] = true
	}
	return errs
}

// validateServiceCIDRUpdate allows a second range of the other family to be added. Existing ranges are immutable.
func validateServiceCIDRUpdate(c, old *networkingv1.ServiceCIDR) field.ErrorList {
	path := field.NewPath("spec", "cidrs")
	after, before := c.Spec.CIDRs, old.Spec.CIDRs
	switch {
	case len(before) == 1 && len(after) == 2:
		return append(validateServiceCIDR(c), validate.Immutable(after[0], before[0], path.Index(0))...)
	case len(after) != len(before):
		return field.ErrorList{field.Invalid(path, after, validate.ImmutableText)}
	}
	var errs field.ErrorList
	for i := range after {
		errs = append(errs, validate.Immutable(after[i], before[i], path.Index(i))...)
	}
	return errs
}

// blocksOf returns all IP ranges that a policy names.
func blocksOf(p *networkingv1.NetworkPolicy) []string {
	var all []string
	if p == nil {
		return nil
	}
	add := func(peers []networkingv1.NetworkPolicyPeer) {
		for _, peer := range peers {
			if peer.IPBlock != nil {
				all = append(append(all, peer.IPBlock.CIDR), peer.IPBlock.Except...)
			}
		}
	}
	for _, r := range p.Spec.Ingress {
		add(r.From)
	}
	for _, r := range p.Spec.Egress {
		add(r.To)
	}
	return all
}
