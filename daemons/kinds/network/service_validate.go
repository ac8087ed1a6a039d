package network

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// maxAffinitySeconds is one day.
const maxAffinitySeconds = 86400

const kubeletPort = 10250

func isHeadless(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// validateService accepts invalid addresses that old already has. old is nil for a new Service.
func validateService(s, old *corev1.Service) field.ErrorList {
	before := serviceAddresses(old)
	path := field.NewPath("spec")
	errs := validate.Supported(s.Spec.Type, []corev1.ServiceType{
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeNodePort,
	}, path.Child("type"))
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName && (s.Spec.ExternalName == "" || s.Spec.ExternalName == "."):
		errs = append(errs, field.Required(path.Child("externalName"), ""))
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		if s.Spec.ClusterIP != "" {
			errs = append(errs, field.Forbidden(path.Child("clusterIP"), "may not be set when `type` is ExternalName"))
		}
		errs = append(errs, validate.DNSSubdomain(strings.TrimSuffix(s.Spec.ExternalName, "."),
			path.Child("externalName"))...)
	case isHeadless(s) && s.Spec.Type != corev1.ServiceTypeClusterIP:
		errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), s.Spec.ClusterIP,
			"may not be set to 'None' for "+string(s.Spec.Type)+" services"))
	case len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(path.Child("clusterIPs"), s.Spec.ClusterIPs,
			"first value must match `clusterIP`"))
	case s.Spec.ClusterIP != "" && !isHeadless(s):
		errs = append(errs, validate.IPAddress(s.Spec.ClusterIP, path.Child("clusterIPs").Index(0), before...)...)
	}
	errs = append(errs, validateServicePorts(s, path.Child("ports"))...)
	errs = append(errs, metavalidation.ValidateLabels(s.Spec.Selector, path.Child("selector"))...)
	errs = append(errs, validate.Supported(s.Spec.SessionAffinity,
		[]corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone},
		path.Child("sessionAffinity"))...)
	if c := s.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		if n := value.OrZero(c.ClientIP.TimeoutSeconds); n <= 0 || n > maxAffinitySeconds {
			errs = append(errs, field.Invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), n,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
		}
	}
	if len(s.Spec.IPFamilies) > 0 || s.Spec.IPFamilyPolicy != nil {
		errs = append(errs, validateFamilies(s, path)...)
	}
	for i, ip := range s.Spec.ExternalIPs {
		errs = append(errs, validateEndpointIP(ip, path.Child("externalIPs").Index(i), before...)...)
	}
	return append(errs, validateTraffic(s, old, path)...)
}

func validateTraffic(s, old *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := s.Spec.ExternalTrafficPolicy; p != "" {
		if s.Spec.Type != corev1.ServiceTypeNodePort && s.Spec.Type != corev1.ServiceTypeLoadBalancer &&
			len(s.Spec.ExternalIPs) == 0 {
			errs = append(errs, field.Invalid(path.Child("externalTrafficPolicy"), p,
				"may only be set for externally-accessible services"))
		}
		errs = append(
			errs,
			validate.Supported(
				p,
				[]corev1.ServiceExternalTrafficPolicy{
					corev1.ServiceExternalTrafficPolicyCluster,
					corev1.ServiceExternalTrafficPolicyLocal,
				},
				path.Child("externalTrafficPolicy"),
			)...)
	}
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		errs = append(
			errs,
			validate.Supported(
				*p,
				[]corev1.ServiceInternalTrafficPolicy{
					corev1.ServiceInternalTrafficPolicyCluster,
					corev1.ServiceInternalTrafficPolicyLocal,
				},
				path.Child("internalTrafficPolicy"),
			)...)
	}
	if n := s.Spec.HealthCheckNodePort; n != 0 &&
		(s.Spec.Type != corev1.ServiceTypeLoadBalancer ||
			s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal) {
		errs = append(errs, field.Invalid(path.Child("healthCheckNodePort"), n,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		errs = append(errs, validate.Supported(*d, []string{
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode,
			corev1.ServiceTrafficDistributionPreferSameZone,
		}, path.Child("trafficDistribution"))...)
	}
	return append(errs, validateBalancerFields(s, old, path)...)
}

// validateBalancerFields checks the fields that only Services with a load balancer may have.
func validateBalancerFields(s, old *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range s.Spec.LoadBalancerSourceRanges {
		var before []string
		if old != nil {
			before = old.Spec.LoadBalancerSourceRanges
		}
		if !slices.Contains(before, r) {
			errs = append(errs, validate.CIDR(strings.TrimSpace(r), path.Child("LoadBalancerSourceRanges").Index(i))...)
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if len(s.Spec.LoadBalancerSourceRanges) > 0 {
			errs = append(errs, field.Forbidden(path.Child("LoadBalancerSourceRanges"),
				"may only be used when `type` is 'LoadBalancer'"))
		}
		if s.Spec.AllocateLoadBalancerNodePorts != nil {
			errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"),
				"may only be used when `type` is 'LoadBalancer'"))
		}
		if s.Spec.LoadBalancerClass != nil {
			errs = append(errs, field.Forbidden(path.Child("loadBalancerClass"),
				"may only be used when `type` is 'LoadBalancer'"))
		}
	} else if class := s.Spec.LoadBalancerClass; class != nil {
		errs = append(errs, validate.Invalid(path.Child("loadBalancerClass"), *class,
			validation.IsQualifiedName(*class))...)
	}
	return errs
}

// validateFamilies checks a Service's IP families and their order.
func validateFamilies(s *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := s.Spec.IPFamilyPolicy; p != nil {
		errs = append(errs, validate.Supported(*p, []corev1.IPFamilyPolicy{
			corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack,
			corev1.IPFamilyPolicySingleStack,
		}, path.Child("ipFamilyPolicy"))...)
	}
	again := validate.MarkRepeats(s.Spec.IPFamilies)
	for i, f := range s.Spec.IPFamilies {
		at := path.Child("ipFamilies").Index(i)
		errs = append(errs, validate.Supported(f, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, at)...)
		if again[i] {
			errs = append(errs, field.Duplicate(at, f))
		}
	}
	return errs
}

func validateServicePorts(s *corev1.Service, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, pairs, nodePorts := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, p := range s.Spec.Ports {
		where := at.Index(i)
		if p.Name == "" && len(s.Spec.Ports) > 1 {
			errs = append(errs, field.Required(where.Child("name"), ""))
		} else if p.Name != "" {
			errs = append(errs, validate.DNSLabel(p.Name, where.Child("name"))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(where.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, validate.PortNumber(int(p.Port), where.Child("port"))...)
		// Through this port, load balancers would expose the nodes' kubelets.
		if p.Port == kubeletPort && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			errs = append(errs, field.Invalid(where.Child("port"), p.Port, fmt.Sprintf(
				"may not expose port %d externally since it is used by kubelet", p.Port)))
		}
		errs = append(errs, validate.Protocol(p.Protocol, where.Child("protocol"))...)
		if p.AppProtocol != nil {
			errs = append(errs, validate.Invalid(where.Child("appProtocol"), *p.AppProtocol,
				validation.IsQualifiedName(*p.AppProtocol))...)
		}
		if p.TargetPort.Type == intstr.String {
			errs = append(errs, validate.Invalid(where.Child("targetPort"), p.TargetPort.StrVal,
				validation.IsValidPortName(p.TargetPort.StrVal))...)
		} else {
			errs = append(errs, validate.PortNumber(int(p.TargetPort.IntVal), where.Child("targetPort"))...)
		}
		pair := fmt.Sprintf("%s/%d", p.Protocol, p.Port)
		if pairs[pair] {
			errs = append(errs, field.Duplicate(where, corev1.ServicePort{Port: p.Port, Protocol: p.Protocol}))
		}
		pairs[pair] = true
		if p.NodePort == 0 {
			continue
		}
		if s.Spec.Type == corev1.ServiceTypeClusterIP || s.Spec.Type == corev1.ServiceTypeExternalName {
			errs = append(errs, field.Forbidden(where.Child("nodePort"), fmt.Sprintf(
				"may not be used when `type` is '%s'", s.Spec.Type)))
		}
		pair = fmt.Sprintf("%s/%d", p.Protocol, p.NodePort)
		if nodePorts[pair] {
			errs = append(errs, field.Duplicate(where.Child("nodePort"), p.NodePort))
		}
		nodePorts[pair] = true
	}
	return errs
}

// serviceAddresses and subsetAddresses return all addresses that an object contains.
func serviceAddresses(s *corev1.Service) []string {
	if s == nil {
		return nil
	}
	all := append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)
	return append(all, s.Spec.ExternalIPs...)
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	var errs field.ErrorList
	list := s.Status.LoadBalancer.Ingress
	if len(list) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer &&
		!value.Same(list, old.Status.LoadBalancer.Ingress) {
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
			errs = append(errs, validate.Supported(*in.IPMode,
				[]corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}, mode)...)
		}
	}
	return errs
}
