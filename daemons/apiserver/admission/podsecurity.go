package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	security "k8s.io/pod-security-admission/admission"
	securityconfig "k8s.io/pod-security-admission/admission/api"
	securityapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"clusterctl/daemons/api"
)

// podSecurity holds pods to the security level that their namespace's labels demand: privileged (anything), baseline or
// restricted. It warns of pods and templates below the level of warnings, notes in the audit log what is below the level of
// audits, and refuses labels that mean nothing.
type podSecurity struct{ rules *security.Admission }

func newPodSecurity(objects api.Objects, c *securityconfig.PodSecurityConfiguration, counts prometheus.Registerer) (*podSecurity, error) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	counted, err := newSecurityCounts(counts)
	if err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	rules := &security.Admission{Configuration: c, Evaluator: checks, Metrics: counted, NamespaceGetter: secured{objects}, PodLister: secured{objects}}
	if err := rules.CompleteConfiguration(); err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	if err := rules.ValidateConfiguration(); err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	return &podSecurity{rules}, nil
}

// Validate looks at pods, at what pods are made of, and at namespaces.
func (p *podSecurity) Validate(ctx context.Context, a *api.Admission) error {
	gr := a.Resource.GroupResource()
	if a.Operation != "CREATE" && a.Operation != "UPDATE" || gr != namespacesGR && !p.rules.PodSpecExtractor.HasPodSpec(gr) {
		return nil
	}
	says := p.rules.Validate(ctx, written{a})
	if a.Origin != nil {
		for key, value := range says.AuditAnnotations {
			a.Origin.Annotate(securityapi.AuditAnnotationPrefix+key, value)
		}
	}
	if says.Allowed {
		for _, text := range says.Warnings {
			if a.Warn != nil {
				a.Warn(text)
			}
		}
		return nil
	}
	if says.Result == nil {
		return forbidden(a, errors.New("not allowed by pod security"))
	}
	return &apierrors.StatusError{ErrStatus: *says.Result}
}

// secured finds namespaces and the pods in them.
type secured struct{ objects api.Objects }

// GetNamespace implements security.NamespaceGetter.
func (s secured) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if obj, ok := s.objects.Get(namespacesGR, "", name); ok {
		if ns, ok := obj.(*corev1.Namespace); ok {
			return ns, nil
		}
	}
	return nil, apierrors.NewNotFound(namespacesGR, name)
}

// ListPods implements security.PodLister.
func (s secured) ListPods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, obj := range s.objects.List(podsGR, namespace) {
		if pod, ok := obj.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// written is a write as the rules of pod security see it.
type written struct{ *api.Admission }

// GetNamespace is of a namespace the namespace itself, which may be exempt.
func (w written) GetNamespace() string {
	if w.Resource.GroupResource() == namespacesGR {
		return w.Name
	}
	return w.Namespace
}

func (w written) GetName() string                          { return w.Name }
func (w written) GetResource() schema.GroupVersionResource { return w.Resource }
func (w written) GetKind() schema.GroupVersionKind         { return w.Kind }
func (w written) GetSubresource() string                   { return w.Subresource }
func (w written) GetOperation() admissionv1.Operation      { return admissionv1.Operation(w.Operation) }
func (w written) GetObject() (runtime.Object, error)       { return w.Object, nil }
func (w written) GetOldObject() (runtime.Object, error)    { return w.Old, nil }
func (w written) GetUserName() string                      { return w.User.Name }
