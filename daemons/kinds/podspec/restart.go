package podspec

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// MaxExitCodes is the maximum number of exit codes in a rule of a container or job.
const MaxExitCodes = 255

// validateRestarts checks when a container is restarted.
func validateRestarts(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := c.RestartPolicy; p != nil {
		errs = append(errs, validate.Supported(*p, []corev1.ContainerRestartPolicy{
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever,
			corev1.ContainerRestartPolicyOnFailure,
		}, at.Child("restartPolicy"))...)
	}
	rules := at.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		errs = append(errs, field.Required(at.Child("restartPolicy"),
			"must specify restartPolicy when restart rules are used"))
	}
	if len(c.RestartPolicyRules) > 20 {
		errs = append(errs, field.TooMany(rules, len(c.RestartPolicyRules), 20))
	}
	for i, r := range c.RestartPolicyRules {
		errs = append(errs, validate.Supported(r.Action, []corev1.ContainerRestartRuleAction{
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers,
		}, rules.Index(i).Child("action"))...)
		codes := rules.Index(i).Child("exitCodes")
		if r.ExitCodes == nil {
			errs = append(errs, field.Required(codes, "must be specified"))
			continue
		}
		errs = append(errs, validate.Supported(r.ExitCodes.Operator, []corev1.ContainerRestartRuleOnExitCodesOperator{
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn,
		}, codes.Child("operator"))...)
		if n := len(r.ExitCodes.Values); n == 0 {
			errs = append(errs, field.Required(codes.Child("values"), "must specify at least 1 value"))
		} else if n > MaxExitCodes {
			errs = append(errs, field.TooMany(codes.Child("values"), n, MaxExitCodes))
		}
		for j, code := range r.ExitCodes.Values {
			if code < 0 || code > 255 {
				errs = append(errs, field.Invalid(codes.Child("values").Index(j), code,
					"must be between 0 and 255, inclusive"))
			}
		}
	}
	return errs
}

// validateResizePolicies checks which resizes restart a container. A container that is never restarted would end.
func validateResizePolicies(c *corev1.Container, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range c.ResizePolicy {
		where := at.Index(i)
		errs = append(errs, validate.Supported(p.ResourceName,
			[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, where.Child("resourceName"))...)
		errs = append(errs, validate.Supported(p.RestartPolicy,
			[]corev1.ResourceResizeRestartPolicy{corev1.NotRequired, corev1.RestartContainer},
			where.Child("restartPolicy"))...)
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(where, p.ResourceName))
		}
		seen[p.ResourceName] = true
		if p.RestartPolicy == corev1.RestartContainer && c.RestartPolicy == nil &&
			spec.RestartPolicy == corev1.RestartPolicyNever {
			errs = append(errs, field.Invalid(where, p.RestartPolicy,
				"must be 'NotRequired' when `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// validateStopSignal requires spec.os.name, because it determines the valid signals.
func validateStopSignal(c *corev1.Container, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return nil
	}
	at = at.Child("lifecycle", "stopSignal")
	switch {
	case spec.OS == nil:
		return field.ErrorList{field.Forbidden(at, "may not be set for containers with empty `spec.os.name`")}
	case spec.OS.Name == corev1.Windows:
		return validate.Supported(*c.Lifecycle.StopSignal, []corev1.Signal{corev1.SIGKILL, corev1.SIGTERM}, at)
	}
	return validate.Supported(*c.Lifecycle.StopSignal, stopSignals, at)
}

// stopSignals lists the signals of Linux: the named ones, and the real-time signals counted from both ends.
var stopSignals = func() []corev1.Signal {
	list := []corev1.Signal{
		corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE,
		corev1.SIGHUP, corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE,
		corev1.SIGPOLL, corev1.SIGPROF, corev1.SIGPWR, corev1.SIGQUIT, corev1.SIGSEGV, corev1.SIGSTKFLT,
		corev1.SIGSTOP, corev1.SIGSYS, corev1.SIGTERM, corev1.SIGTRAP, corev1.SIGTSTP, corev1.SIGTTIN,
		corev1.SIGTTOU, corev1.SIGURG, corev1.SIGUSR1, corev1.SIGUSR2, corev1.SIGVTALRM, corev1.SIGWINCH,
		corev1.SIGXCPU, corev1.SIGXFSZ,
		corev1.SIGRTMIN, corev1.SIGRTMAX,
	}
	for i := 1; i <= 15; i++ {
		list = append(list, corev1.Signal("SIGRTMIN+"+strconv.Itoa(i)))
	}
	for i := 1; i <= 14; i++ {
		list = append(list, corev1.Signal("SIGRTMAX-"+strconv.Itoa(i)))
	}
	return list
}()
