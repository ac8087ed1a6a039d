package core

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

func Nodes() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Node"),
		Resource: "nodes", Singular: "node", ShortNames: []string{"no"}, StorageKey: "minions",
		New: kind.New[corev1.Node](), NewList: kind.New[corev1.NodeList](),
		Default: kind.Adapt(func(n *corev1.Node) {
			// podCIDR equals the first of podCIDRs. Old clients know only podCIDR.
			switch cidr, all := n.Spec.PodCIDR, n.Spec.PodCIDRs; {
			case cidr == "" && len(all) > 0:
				n.Spec.PodCIDR = all[0]
			case cidr != "" && (len(all) == 0 || all[0] != cidr):
				n.Spec.PodCIDRs = []string{cidr}
			}
			if n.Status.Allocatable == nil && n.Status.Capacity != nil {
				n.Status.Allocatable = n.Status.Capacity.DeepCopy()
			}
		}),
		// A kubelet creates its node with a status, so creation retains the status.
		PrepareUpdate: kind.AdaptUpdate(func(n, old *corev1.Node) { n.Status = old.Status }),
		Warnings:      kind.AdaptWarnings(nodeWarnings),
		Validate: kind.AdaptValidate(
			func(n *corev1.Node) field.ErrorList { return validateNode(n, nil) },
		), ValidateUpdate: kind.AdaptValidateUpdate(validateNodeUpdate),
		Fields: kind.AdaptFields(func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		}),
		Columns: kind.NewColumns("Status", "Roles", "Age", "Version", "Internal-IP*", "External-IP*", "OS-Image*",
			"Kernel-Version*", "Container-Runtime*"),
		Row: kind.AdaptRow(nodeRow),
		Status: kind.NewStatus(func(to, from *corev1.Node) { to.Status = *from.Status.DeepCopy() },
			validateNodeStatus),
		Subresources: []string{"proxy"},
	}
}

func nodeRow(n *corev1.Node) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	unknown := func(s string) string {
		if s == "" {
			return "<unknown>"
		}
		return s
	}
	info := n.Status.NodeInfo
	return []any{
		status, cell.OrNone(strings.Join(nodeRoles(n), ",")), cell.Age(n.CreationTimestamp), info.KubeletVersion,
		cell.OrNone(nodeAddress(n, corev1.NodeInternalIP)), cell.OrNone(nodeAddress(n, corev1.NodeExternalIP)),
		unknown(info.OSImage), unknown(info.KernelVersion), unknown(info.ContainerRuntimeVersion),
	}
}

// nodeRoles returns the roles from a node's labels, as kubeadm and others set them.
func nodeRoles(n *corev1.Node) []string {
	var roles []string
	for k, v := range n.Labels {
		if role, ok := strings.CutPrefix(k, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if k == "kubernetes.io/role" && v != "" {
			roles = append(roles, v)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return ""
}

func validateNode(n, old *corev1.Node) field.ErrorList {
	var before []string
	if old != nil {
		before = old.Spec.PodCIDRs
	}
	errs := validateNodeStatus(n, nil)
	path := field.NewPath("spec")
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, validate.CIDR(cidr, path.Child("podCIDRs").Index(i), before...)...)
	}
	if several, err := netutils.IsDualStackCIDRStrings(n.Spec.PodCIDRs); len(n.Spec.PodCIDRs) > 2 ||
		len(n.Spec.PodCIDRs) > 1 && err == nil && !several {
		errs = append(errs, field.Invalid(path.Child("podCIDRs"), n.Spec.PodCIDRs,
			"may specify no more than one CIDR for each IP family"))
	}
	return append(errs, validateTaints(n.Spec.Taints, path.Child("taints"))...)
}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	effects := []corev1.TaintEffect{
		corev1.TaintEffectNoSchedule,
		corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute,
	}
	seen := map[string]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		errs = append(errs, validate.LabelValue(t.Value, at.Child("value"))...)
		errs = append(errs, validate.Supported(t.Effect, effects, at.Child("effect"))...)
		id := t.Key + ":" + string(t.Effect)
		if seen[id] {
			dup := field.Duplicate(at, t)
			dup.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, dup)
		}
		seen[id] = true
	}
	return errs
}

func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	errs := validateNode(n, old)
	path := field.NewPath("spec")
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(path.Child("podCIDRs"),
			"node updates may not change podCIDR except from \"\" to valid"))
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(path.Child("providerID"),
			"node updates may not change providerID except from \"\" to valid"))
	}
	return errs
}

// validateNodeStatus checks the resources and addresses that a node reports.
func validateNodeStatus(n, _ *corev1.Node) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for _, side := range []struct {
		name string
		list corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		for name, q := range side.list {
			at := path.Child(side.name).Key(string(name))
			if q.Sign() < 0 {
				errs = append(errs, field.Invalid(at, q.String(), validate.NotNegativeText))
			}
			if (validate.IsExtended(name) || name == corev1.ResourcePods) && q.MilliValue()%1000 != 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
			}
		}
	}
	again := validate.MarkRepeats(n.Status.Addresses)
	for i, a := range n.Status.Addresses {
		if again[i] {
			errs = append(errs, field.Duplicate(path.Child("addresses").Index(i), a))
		}
	}
	return errs
}
