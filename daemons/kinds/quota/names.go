package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources for which quotas count more than the number of objects.
var (
	pods     = schema.GroupResource{Resource: "pods"}
	services = schema.GroupResource{Resource: "services"}
	claims   = schema.GroupResource{Resource: "persistentvolumeclaims"}
	devices  = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
)

const (
	countPrefix          = "count/"
	requestsPrefix       = corev1.DefaultResourceRequestsPrefix
	perClassSuffix       = ".storageclass.storage.k8s.io/"
	claimsPerClassSuffix = corev1.ResourceClaimsPerClass
	hugePagesPrefix      = corev1.ResourceHugePagesPrefix
)

// CountedResources returns the resources whose objects use the item named name in spec.hard. It returns none if no
// objects do. Extended resources are used by pods that request them, and as devices by ResourceClaims.
func CountedResources(name corev1.ResourceName) []schema.GroupResource {
	one := func(gr schema.GroupResource, ok bool) []schema.GroupResource {
		if !ok {
			return nil
		}
		return []schema.GroupResource{gr}
	}
	switch name {
	case corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return one(pods, true)
	case corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return one(services, true)
	case corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
		return one(claims, true)
	case corev1.ResourceConfigMaps,
		corev1.ResourceSecrets,
		corev1.ResourceReplicationControllers,
		corev1.ResourceQuotas:
		return one(schema.GroupResource{Resource: string(name)}, true)
	}
	text := string(name)
	if counted, ok := strings.CutPrefix(text, countPrefix); ok {
		return one(schema.ParseGroupResource(counted), counted != "")
	}
	if class, thing, ok := strings.Cut(text, perClassSuffix); ok {
		return one(
			claims,
			class != "" &&
				(thing == string(corev1.ResourcePersistentVolumeClaims) ||
					thing == string(corev1.ResourceRequestsStorage)),
		)
	}
	if class, ok := strings.CutSuffix(text, claimsPerClassSuffix); ok {
		return one(devices, class != "")
	}
	if requested, ok := strings.CutPrefix(text, requestsPrefix); ok {
		r := corev1.ResourceName(requested)
		if isExtended(r) {
			return []schema.GroupResource{pods, devices}
		}
		return one(pods, isComputed(r) || strings.HasPrefix(requested, hugePagesPrefix))
	}
	return one(pods, strings.HasPrefix(text, hugePagesPrefix))
}

// isComputed reports whether a resource is cpu, memory or ephemeral storage.
func isComputed(r corev1.ResourceName) bool {
	return r == corev1.ResourceCPU || r == corev1.ResourceMemory || r == corev1.ResourceEphemeralStorage
}

// isExtended reports whether a resource is an extended resource, such as example.com/gpu, or stands for a device class.
func isExtended(r corev1.ResourceName) bool {
	if class, ok := strings.CutPrefix(string(r), resourcev1.ResourceDeviceClassPrefix); ok {
		return class != ""
	}
	return strings.Contains(string(r), "/") && !strings.Contains(string(r), corev1.ResourceDefaultNamespacePrefix)
}
