package kinds

import (
	"net"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Validation of statuses of kinds that are not workloads.

func validateNamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	path, phase := field.NewPath("status", "Phase"), n.Status.Phase
	switch {
	case n.DeletionTimestamp.IsZero() && phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !n.DeletionTimestamp.IsZero() && phase != corev1.NamespaceTerminating:
		return field.ErrorList{
			field.Invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"),
		}
	}
	return nil
}

func validateQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("status")
	return append(validateQuotaAmounts(q.Status.Hard, path.Child("hard")),
		validateQuotaAmounts(q.Status.Used, path.Child("used"))...)
}

func validateAutoscalerStatus(a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return requireNotNegativeCounts(
		field.NewPath("status"),
		namedCount{"currentReplicas", int64(a.Status.CurrentReplicas)},
		namedCount{"desiredReplicas", int64(a.Status.DesiredReplicas)},
	)
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
				errs = append(errs, field.Invalid(at, q.String(), notNegativeText))
			}
			if (isExtended(name) || name == corev1.ResourcePods) && q.MilliValue()%1000 != 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
			}
		}
	}
	again := markRepeats(n.Status.Addresses)
	for i, a := range n.Status.Addresses {
		if again[i] {
			errs = append(errs, field.Duplicate(path.Child("addresses").Index(i), a))
		}
	}
	return errs
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	var errs field.ErrorList
	list := s.Status.LoadBalancer.Ingress
	if len(list) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer && !Same(list, old.Status.LoadBalancer.Ingress) {
		errs = append(errs, field.Forbidden(path, "may only be used when `spec.type` is \"LoadBalancer\""))
	}
	for i, in := range list {
		at := path.Index(i)
		errs = append(errs, validateBalancer(in.IP, in.Hostname, at)...)
		switch mode := at.Child("ipMode"); {
		case in.IP != "" && in.IPMode == nil:
			errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
		case in.IP == "" && in.IPMode != nil:
			errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
		case in.IPMode != nil:
			errs = append(
				errs,
				requireSupported(
					*in.IPMode,
					[]corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP},
					mode,
				)...)
		}
	}
	return errs
}

func validateIngressStatus(i, _ *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	for n, in := range i.Status.LoadBalancer.Ingress {
		errs = append(
			errs,
			validateBalancer(in.IP, in.Hostname, field.NewPath("status", "loadBalancer", "ingress").Index(n))...)
	}
	return errs
}

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
		errs = append(errs, validateDNSSubdomain(hostname, at.Child("hostname"))...)
		if net.ParseIP(hostname) != nil {
			errs = append(errs, field.Invalid(at.Child("hostname"), hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}

// Limits for what a driver reports about an attachment, in bytes.
const (
	maxVolumeError        = 1024
	maxAttachmentMetadata = 256 << 10
)

func validateAttachmentStatus(a, _ *storagev1.VolumeAttachment) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	size := 0
	for k, v := range a.Status.AttachmentMetadata {
		size += len(k) + len(v)
	}
	if size > maxAttachmentMetadata {
		errs = append(errs, field.TooLong(path.Child("attachmentMetadata"), "", maxAttachmentMetadata))
	}
	for _, side := range []struct {
		name string
		e    *storagev1.VolumeError
	}{{"attachError", a.Status.AttachError}, {"detachError", a.Status.DetachError}} {
		if side.e != nil && len(side.e.Message) > maxVolumeError {
			errs = append(errs, field.TooLong(path.Child(side.name, "message"), "", maxVolumeError))
		}
	}
	return errs
}

func validateAPIServiceStatus(s, _ *apiregistrationv1.APIService) field.ErrorList {
	known := []apiregistrationv1.ConditionStatus{
		apiregistrationv1.ConditionFalse,
		apiregistrationv1.ConditionTrue,
		apiregistrationv1.ConditionUnknown,
	}
	var errs field.ErrorList
	for i, c := range s.Status.Conditions {
		if !slices.Contains(known, c.Status) {
			errs = append(
				errs,
				notSupported(field.NewPath("status", "conditions").Index(i).Child("status"), c.Status, known),
			)
		}
	}
	return errs
}

func validateFlowSchemaStatus(s, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	var types []string
	for _, c := range s.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return validateConditionTypes(types)
}

func validatePriorityLevelStatus(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	var types []string
	for _, c := range p.Status.Conditions {
		types = append(types, string(c.Type))
	}
	return validateConditionTypes(types)
}

// validateConditionTypes requires that each condition has a type, and that types are unique.
func validateConditionTypes(types []string) field.ErrorList {
	var errs field.ErrorList
	again := markRepeats(types)
	for i, t := range types {
		at := field.NewPath("status", "conditions").Index(i).Child("type")
		if again[i] {
			errs = append(errs, field.Duplicate(at, t))
		}
		errs = append(errs, requireValue(t, at, "must not be empty")...)
	}
	return errs
}

// isNativeResource reports whether a resource name is one of Kubernetes' own.
func isNativeResource(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
