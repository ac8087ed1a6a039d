package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// validateProbe checks a probe. once means that the success threshold must be 1.
func validateProbe(p *corev1.Probe, once bool, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandlers(p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil, at)
	errs = append(errs, validate.NotNegative(int64(p.InitialDelaySeconds), at.Child("initialDelaySeconds"))...)
	errs = append(errs, validate.NotNegative(int64(p.TimeoutSeconds), at.Child("timeoutSeconds"))...)
	errs = append(errs, validate.NotNegative(int64(p.PeriodSeconds), at.Child("periodSeconds"))...)
	errs = append(errs, validate.NotNegative(int64(p.SuccessThreshold), at.Child("successThreshold"))...)
	errs = append(errs, validate.NotNegative(int64(p.FailureThreshold), at.Child("failureThreshold"))...)
	if once && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	if s := p.TerminationGracePeriodSeconds; s != nil {
		if *s <= 0 {
			errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *s, "must be greater than 0"))
		}
		if strings.HasSuffix(at.String(), "readinessProbe") {
			errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *s,
				"must not be set for readinessProbes"))
		}
	}
	return errs
}

// validateHook checks a hook of a pod with the given grace period in seconds.
func validateHook(h *corev1.LifecycleHandler, grace *int64, at *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	errs := validateHandlers(h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, at)
	if h.Sleep != nil && grace != nil && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > *grace) {
		errs = append(errs, field.Invalid(at.Child("sleep"), h.Sleep.Seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)))
	}
	return errs
}

// validateHandlers requires exactly one handler.
func validateHandlers(
	exec *corev1.ExecAction,
	get *corev1.HTTPGetAction,
	tcp *corev1.TCPSocketAction,
	grpc *corev1.GRPCAction,
	sleep *corev1.SleepAction,
	at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	count := 0
	one := func(name string) bool {
		if count++; count > 1 {
			errs = append(errs, field.Forbidden(at.Child(name), "may not specify more than 1 handler type"))
			return false
		}
		return true
	}
	if exec != nil && one("exec") && len(exec.Command) == 0 {
		errs = append(errs, field.Required(at.Child("exec", "command"), ""))
	}
	if get != nil && one("httpGet") {
		where := at.Child("httpGet")
		if get.Path == "" {
			errs = append(errs, field.Required(where.Child("path"), ""))
		}
		errs = append(errs, validatePortOrName(get.Port, where.Child("port"))...)
		errs = append(errs, validate.Supported(get.Scheme,
			[]corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}, where.Child("scheme"))...)
		for i, h := range get.HTTPHeaders {
			errs = append(errs, validate.Invalid(where.Child("httpHeaders").Index(i).Child("name"), h.Name,
				validation.IsHTTPHeaderName(h.Name))...)
		}
	}
	if tcp != nil && one("tcpSocket") {
		errs = append(errs, validatePortOrName(tcp.Port, at.Child("tcpSocket", "port"))...)
	}
	if grpc != nil && one("grpc") {
		errs = append(errs, validate.PortNumber(int(grpc.Port), at.Child("grpc", "port"))...)
	}
	if sleep != nil {
		one("sleep")
	}
	if count == 0 {
		errs = append(errs, field.Required(at, "must specify a handler type"))
	}
	return errs
}

func validateRequirements(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, side := range []struct {
		name string
		list corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		errs = append(errs, validate.Quantities(side.list, at.Child(side.name))...)
	}
	for name, request := range r.Requests {
		limit, ok := r.Limits[name]
		where := at.Child("requests")
		switch {
		case ok && (validate.IsExtended(name) || validate.IsHugePages(name)) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(where, request.String(),
				"must be equal to "+string(name)+" limit of "+limit.String()))
		case ok && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(where, request.String(),
				"must be less than or equal to "+string(name)+" limit of "+limit.String()))
		case !ok && (validate.IsExtended(name) || validate.IsHugePages(name)):
			errs = append(errs, field.Required(at.Child("limits"),
				"Limit must be set for non overcommitable resources"))
		}
	}
	if !hasCPUOrMemory(r.Limits) && !hasCPUOrMemory(r.Requests) &&
		(validate.HasHugePages(r.Limits) || validate.HasHugePages(r.Requests)) {
		errs = append(errs, field.Forbidden(at, "HugePages require cpu or memory"))
	}
	return errs
}

// hasCPUOrMemory reports whether a list contains cpu or memory.
func hasCPUOrMemory(list corev1.ResourceList) bool {
	_, cpu := list[corev1.ResourceCPU]
	_, memory := list[corev1.ResourceMemory]
	return cpu || memory
}
