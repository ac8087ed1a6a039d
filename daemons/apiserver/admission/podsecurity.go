package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	securityconfig "k8s.io/pod-security-admission/admission/api"
	securityvalidation "k8s.io/pod-security-admission/admission/api/validation"
	securityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"clusterctl/daemons/api"
)

// podSecurity enforces the Pod Security Standards: each namespace's labels select a level (privileged, baseline or
// restricted) to enforce, to warn about and to record in the audit log. Invalid labels are rejected. The checks of each
// level are those of upstream's package policy. Upstream's package admission is not used, because it links the clients
// of all versions of all kinds into the program.
type podSecurity struct {
	objects       api.Objects
	checks        policy.Evaluator
	defaultPolicy securityapi.Policy // for namespaces without labels
	exemptions    securityconfig.PodSecurityExemptions
	counts        *securityCounts
}

func newPodSecurity(
	objects api.Objects,
	c *securityconfig.PodSecurityConfiguration,
	counts prometheus.Registerer,
) (*podSecurity, error) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	counted, err := newSecurityCounts(counts)
	if err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	if err := securityvalidation.ValidatePodSecurityConfiguration(c).ToAggregate(); err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	defaults, err := securityconfig.ToPolicy(c.Defaults)
	if err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	return &podSecurity{objects: objects, checks: checks, defaultPolicy: defaults, exemptions: c.Exemptions,
		counts: counted}, nil
}

// Validate checks pods, objects with a pod template, and namespaces.
func (p *podSecurity) Validate(ctx context.Context, a *api.Admission) error {
	if a.Operation != "CREATE" && a.Operation != "UPDATE" {
		return nil
	}
	switch gr := a.Resource.GroupResource(); {
	case gr == namespacesGR:
		return p.checkNamespace(ctx, a)
	case gr == podsGR:
		return p.checkPod(a)
	case templateResources[gr]:
		return p.checkTemplate(a)
	}
	return nil
}

// harmlessSubresources are subresources of pods that do not change their security settings.
var harmlessSubresources = []string{"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}

func (p *podSecurity) checkPod(a *api.Admission) error {
	if slices.Contains(harmlessSubresources, a.Subresource) || p.isExempt(a) {
		return nil
	}
	labels, err := p.namespaceLabels(a.Namespace)
	if err != nil {
		p.counts.countError(true, a)
		p.annotate(a, "error", fmt.Sprintf("failed to lookup namespace %q: %v", a.Namespace, err))
		return apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", a.Namespace))
	}
	demanded, mistakes := securityapi.PolicyToEvaluate(labels, p.defaultPolicy)
	if len(mistakes) == 0 && demanded.FullyPrivileged() {
		p.counts.countEvaluation("allow", demanded.Enforce, "enforce", a)
		privileged := securityapi.LevelVersion{Level: securityapi.LevelPrivileged, Version: securityapi.LatestVersion()}
		p.annotate(a, securityapi.EnforcedPolicyAnnotationKey, privileged.String())
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		p.counts.countError(true, a)
		return apierrors.NewBadRequest("failed to decode pod")
	}
	if a.Operation == "UPDATE" {
		old, ok := a.Old.(*corev1.Pod)
		if !ok {
			p.counts.countError(true, a)
			return apierrors.NewBadRequest("failed to decode old pod")
		}
		if !runsOtherImages(pod, old) {
			return nil
		}
	}
	return p.evaluate(a, demanded, mistakes.ToAggregate(), &pod.ObjectMeta, &pod.Spec, true)
}

// checkTemplate checks an object with a pod template. Violations are warned about and audited, never rejected.
func (p *podSecurity) checkTemplate(a *api.Admission) error {
	if a.Subresource != "" || p.isExempt(a) {
		return nil
	}
	labels, err := p.namespaceLabels(a.Namespace)
	if err != nil {
		p.counts.countError(true, a)
		p.annotate(a, "error", fmt.Sprintf("failed to lookup namespace %q: %v", a.Namespace, err))
		return nil
	}
	demanded, mistakes := securityapi.PolicyToEvaluate(labels, p.defaultPolicy)
	if len(mistakes) == 0 && demanded.Warn.Level == securityapi.LevelPrivileged &&
		demanded.Audit.Level == securityapi.LevelPrivileged {
		return nil
	}
	template, ok := templateOf(a.Object)
	if !ok {
		p.counts.countError(true, a)
		p.annotate(a, "error", fmt.Sprintf("failed to extract pod template: unexpected object type: %s", a.Kind))
		return nil
	}
	if template == nil {
		return nil
	}
	return p.evaluate(a, demanded, mistakes.ToAggregate(), &template.ObjectMeta, &template.Spec, false)
}

// evaluate checks a pod against a namespace's policy. mistake is the error of the namespace's labels, nil for none.
func (p *podSecurity) evaluate(
	a *api.Admission,
	demanded securityapi.Policy,
	mistake error,
	meta *metav1.ObjectMeta,
	spec *corev1.PodSpec,
	enforce bool,
) error {
	if spec.RuntimeClassName != nil && *spec.RuntimeClassName != "" &&
		slices.Contains(p.exemptions.RuntimeClasses, *spec.RuntimeClassName) {
		p.recordExemption(a, "runtimeClass")
		return nil
	}
	if mistake != nil {
		p.annotate(a, "error", fmt.Sprintf("Failed to parse policy: %v", mistake))
		p.counts.countError(false, a)
	}
	results := map[securityapi.LevelVersion]policy.AggregateCheckResult{}
	against := func(level securityapi.LevelVersion) policy.AggregateCheckResult {
		if _, ok := results[level]; !ok {
			results[level] = policy.AggregateCheckResults(p.checks.EvaluatePod(level, meta, spec))
		}
		return results[level]
	}
	var refused error
	if enforce {
		p.annotate(a, securityapi.EnforcedPolicyAnnotationKey, demanded.Enforce.String())
		if r := against(demanded.Enforce); r.Allowed {
			p.counts.countEvaluation("allow", demanded.Enforce, "enforce", a)
		} else {
			p.counts.countEvaluation("deny", demanded.Enforce, "enforce", a)
			refused = forbidden(a,
				fmt.Errorf("violates PodSecurity %q: %s", demanded.Enforce.String(), r.ForbiddenDetail()))
		}
	}
	if r := against(demanded.Audit); !r.Allowed {
		text := fmt.Sprintf("would violate PodSecurity %q: %s", demanded.Audit.String(), r.ForbiddenDetail())
		p.annotate(a, securityapi.AuditViolationsAnnotationKey, text)
		p.counts.countEvaluation("deny", demanded.Audit, "audit", a)
	}
	if refused != nil {
		return refused
	}
	if r := against(demanded.Warn); !r.Allowed {
		addWarning(a, fmt.Sprintf("would violate PodSecurity %q: %s", demanded.Warn.String(), r.ForbiddenDetail()))
		p.counts.countEvaluation("deny", demanded.Warn, "warn", a)
	}
	return nil
}

// isExempt reports whether the configuration exempts the namespace or the user of a write.
func (p *podSecurity) isExempt(a *api.Admission) bool {
	switch {
	case a.Namespace != "" && slices.Contains(p.exemptions.Namespaces, a.Namespace):
		p.recordExemption(a, "namespace")
	case a.User.Name != "" && slices.Contains(p.exemptions.Usernames, a.User.Name):
		p.recordExemption(a, "user")
	default:
		return false
	}
	return true
}

func (p *podSecurity) recordExemption(a *api.Admission, reason string) {
	p.counts.countExemption(a)
	p.annotate(a, securityapi.ExemptionReasonAnnotationKey, reason)
}

func (p *podSecurity) annotate(a *api.Admission, key, value string) {
	if a.Origin != nil {
		a.Origin.Annotate(securityapi.AuditAnnotationPrefix+key, value)
	}
}

func addWarning(a *api.Admission, text string) {
	if a.Warn != nil {
		a.Warn(text)
	}
}

// namespaceLabels returns the labels of a namespace.
func (p *podSecurity) namespaceLabels(namespace string) (map[string]string, error) {
	if obj, ok := p.objects.Get(namespacesGR, "", namespace); ok {
		if ns, ok := obj.(*corev1.Namespace); ok {
			return ns.Labels, nil
		}
	}
	return nil, apierrors.NewNotFound(namespacesGR, namespace)
}

// runsOtherImages reports whether an update of a pod adds a container or changes an image.
func runsOtherImages(pod, old *corev1.Pod) bool {
	others := func(a, b []corev1.Container) bool {
		return !slices.EqualFunc(a, b, func(a, b corev1.Container) bool { return a.Image == b.Image })
	}
	if others(pod.Spec.Containers, old.Spec.Containers) || others(pod.Spec.InitContainers, old.Spec.InitContainers) {
		return true
	}
	return slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
		same := func(o corev1.EphemeralContainer) bool { return o.Name == c.Name && o.Image == c.Image }
		return !slices.ContainsFunc(old.Spec.EphemeralContainers, same)
	})
}

// templateResources are the resources whose objects have a pod template.
var templateResources = map[resourceName]bool{
	{Resource: "replicationcontrollers"}:      true,
	{Resource: "podtemplates"}:                true,
	{Group: "apps", Resource: "replicasets"}:  true,
	{Group: "apps", Resource: "deployments"}:  true,
	{Group: "apps", Resource: "statefulsets"}: true,
	{Group: "apps", Resource: "daemonsets"}:   true,
	{Group: "batch", Resource: "jobs"}:        true,
	{Group: "batch", Resource: "cronjobs"}:    true,
}

// templateOf returns the pod template of an object, nil for none, and reports whether the kind has one.
func templateOf(obj runtime.Object) (*corev1.PodTemplateSpec, bool) {
	switch o := obj.(type) {
	case *corev1.PodTemplate:
		return &o.Template, true
	case *corev1.ReplicationController:
		return o.Spec.Template, true
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, true
	case *appsv1.Deployment:
		return &o.Spec.Template, true
	case *appsv1.DaemonSet:
		return &o.Spec.Template, true
	case *appsv1.StatefulSet:
		return &o.Spec.Template, true
	case *batchv1.Job:
		return &o.Spec.Template, true
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, true
	}
	return nil, false
}
