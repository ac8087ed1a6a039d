package admission

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	securityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"clusterctl/daemons/api"
)

// podSecurity holds pods to the security level that their namespace's labels demand:
// privileged (anything), baseline or restricted.
type podSecurity struct {
	objects api.Objects
	checks  policy.Evaluator
}

func newPodSecurity(objects api.Objects) (*podSecurity, error) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	return &podSecurity{objects, checks}, nil
}

// Validate refuses pods below the enforced level, and warns of pods and templates
// below the level of warnings.
func (p *podSecurity) Validate(_ context.Context, a *api.Admission) error {
	if a.Namespace == "" || a.Operation != "CREATE" && a.Operation != "UPDATE" || a.Subresource != "" && a.Subresource != "ephemeralcontainers" {
		return nil
	}
	meta, spec, pod := template(a.Object)
	if spec == nil {
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok && a.Subresource == "" && sameSecurity(a.Object.(*corev1.Pod), old) {
		return nil
	}
	obj, ok := p.objects.Get(namespacesGR, "", a.Namespace)
	if !ok {
		return nil // namespaceLifecycle has said so
	}
	privileged := securityapi.LevelVersion{Level: securityapi.LevelPrivileged, Version: securityapi.LatestVersion()}
	demanded, errs := securityapi.PolicyToEvaluate(obj.(*corev1.Namespace).Labels, securityapi.Policy{Enforce: privileged, Audit: privileged, Warn: privileged})
	if pod && (len(errs) > 0 || demanded.Enforce.Level != securityapi.LevelPrivileged) {
		if why := p.violations(demanded.Enforce, meta, spec); why != "" {
			return forbidden(a, fmt.Errorf("violates PodSecurity %q: %s", demanded.Enforce.String(), why))
		}
	}
	if demanded.Warn.Level != securityapi.LevelPrivileged && a.Warn != nil {
		if why := p.violations(demanded.Warn, meta, spec); why != "" {
			a.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", demanded.Warn.String(), why))
		}
	}
	return nil
}

func (p *podSecurity) violations(level securityapi.LevelVersion, meta *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	result := policy.AggregateCheckResults(p.checks.EvaluatePod(level, meta, spec))
	if result.Allowed {
		return ""
	}
	return result.ForbiddenDetail()
}

// template returns the pod in an object, and whether the object is one itself.
func template(obj any) (*metav1.ObjectMeta, *corev1.PodSpec, bool) {
	of := func(t *corev1.PodTemplateSpec) (*metav1.ObjectMeta, *corev1.PodSpec, bool) {
		return &t.ObjectMeta, &t.Spec, false
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.ObjectMeta, &o.Spec, true
	case *corev1.PodTemplate:
		return of(&o.Template)
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return of(o.Spec.Template)
		}
	case *appsv1.ReplicaSet:
		return of(&o.Spec.Template)
	case *appsv1.Deployment:
		return of(&o.Spec.Template)
	case *appsv1.StatefulSet:
		return of(&o.Spec.Template)
	case *appsv1.DaemonSet:
		return of(&o.Spec.Template)
	case *batchv1.Job:
		return of(&o.Spec.Template)
	case *batchv1.CronJob:
		return of(&o.Spec.JobTemplate.Spec.Template)
	}
	return nil, nil, false
}

// sameSecurity says whether an update leaves alone all that the checks look at: images
// are not among that, and the rest of a pod's spec does not change.
func sameSecurity(pod, old *corev1.Pod) bool {
	prefix := "container.apparmor.security.beta.kubernetes.io/"
	for key, v := range pod.Annotations {
		if strings.HasPrefix(key, prefix) && old.Annotations[key] != v {
			return false
		}
	}
	return true
}
