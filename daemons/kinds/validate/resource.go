package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/quantity"
)

// StandardResources lists the resources without a domain that containers may request.
var StandardResources = []corev1.ResourceName{
	corev1.ResourceCPU,
	corev1.ResourceMemory,
	corev1.ResourceEphemeralStorage,
}

func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func HasHugePages(list corev1.ResourceList) bool {
	for name := range list {
		if IsHugePages(name) {
			return true
		}
	}
	return false
}

// Quantities checks the resource names and amounts of a container or pod.
func Quantities(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, q := range list {
		where := at.Key(string(name))
		errs = append(errs, ResourceName(name, where)...)
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(where, q.String(), NotNegativeText))
		}
		if !slices.Contains(StandardResources, name) && q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(where, q.String(), "must be an integer"))
		}
		if page, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
			size, err := quantity.Parse(page)
			if err != nil || size.Value() <= 0 || q.Value()%size.Value() != 0 {
				errs = append(errs, field.Invalid(where, q.String(),
					fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
			}
		}
	}
	return errs
}

// unqualifiedNames lists resource names without a domain that are not for containers.
var unqualifiedNames = []corev1.ResourceName{
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceRequestsStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
	corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
	corev1.ResourceSecrets,
	corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceStorage,
	corev1.ResourceServicesNodePorts,
	corev1.ResourceServicesLoadBalancers,
}

func ResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if !strings.Contains(string(name), "/") {
		if !slices.Contains(StandardResources, name) &&
			!strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			var errs field.ErrorList
			if !slices.Contains(unqualifiedNames, name) {
				errs = append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
			}
			return append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
		}
		return nil
	}
	return Invalid(at, name, validation.IsQualifiedName(string(name)))
}

// IsExtended reports whether a resource is an extended resource. Those are integers that cannot be shared, such as
// devices.
func IsExtended(name corev1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && !strings.HasSuffix(domain, "kubernetes.io")
}

// IsNative reports whether a resource name is one of Kubernetes' own.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
