package kinds

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateIPAddress and validateCIDR reject addresses in forms that programs interpret differently, such as 010.0.0.1
// and 10.0.0.1/8. Values that the object had before are accepted, so that objects of older servers can still be changed
// and deleted.
func validateIPAddress(text string, at *field.Path, before ...string) field.ErrorList {
	return validation.IsValidIPForLegacyField(at, text, true, before)
}

func validateCIDR(text string, at *field.Path, before ...string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(at, text, true, before)
}

// RemoveOldAliasErrors removes the errors about host aliases whose address the object had in that form before. As with
// other addresses, the rest of objects from older servers can be changed then.
func RemoveOldAliasErrors(errs field.ErrorList, old runtime.Object) field.ErrorList {
	spec := podSpecOf(old)
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

// podSpecOf returns the spec of a pod or of an object's pod template, or nil for other kinds.
func podSpecOf(obj runtime.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec
		}
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
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

// serviceAddresses and subsetAddresses return all addresses that an object contains.
func serviceAddresses(s *corev1.Service) []string {
	if s == nil {
		return nil
	}
	all := append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)
	return append(all, s.Spec.ExternalIPs...)
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
