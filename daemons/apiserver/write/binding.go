package write

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/body"
	"clusterctl/daemons/apiserver/request"
)

// BindPod assigns a pod to a node. Schedulers send this request.
func (s Subresources) BindPod(q *request.Request) error {
	if q.Verb != "create" {
		return request.MethodNotAllowed(q)
	}
	b := &corev1.Binding{}
	if err := body.Decode(q, corev1.SchemeGroupVersion.WithKind("Binding"), b); err != nil {
		return err
	}
	if b.Name != "" && b.Name != q.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	return s.assignPod(q, b)
}

// createBinding answers the creation of a Binding as an object of its own, which upstream still supports.
func (s Subresources) createBinding(q *request.Request) error {
	b := &corev1.Binding{}
	if err := body.Decode(q, corev1.SchemeGroupVersion.WithKind("Binding"), b); err != nil {
		return err
	}
	pods := s.writes.server.Target(corev1.SchemeGroupVersion.WithResource("pods"))
	if !pods.IsServed {
		return request.PageNotFound()
	}
	return s.assignPod(q.WithTarget(pods, "binding", q.Namespace, b.Name), b)
}

func (s Subresources) assignPod(q *request.Request, b *corev1.Binding) error {
	if err := setNamespace(q, b); err != nil {
		return err
	}
	if b.Target.Name == "" || b.Target.Kind != "" && b.Target.Kind != "Node" {
		return apierrors.NewBadRequest(`a binding's target must be a Node, with its name`)
	}
	w, err := s.writes.newWrite(q)
	if err != nil {
		return err
	}
	kind := corev1.SchemeGroupVersion.WithKind("Binding")
	if err := s.writes.admitter.AdmitSubresource(q, "CREATE", kind, b, w.dryRun); err != nil {
		return err
	}
	_, err = w.modify(q.HTTP.Context(),
		func(live runtime.Object) (runtime.Object, error) { return applyBinding(q, live, b) })
	if err != nil {
		return err
	}
	return q.Media.WriteObject(q.Answer, http.StatusCreated, request.StatusKind,
		&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated})
}

// applyBinding returns the pod, assigned to the node of a binding.
func applyBinding(q *request.Request, live runtime.Object, b *corev1.Binding) (runtime.Object, error) {
	stored, ok := live.(*corev1.Pod)
	if !ok {
		return nil, apierrors.NewNotFound(q.GroupResource(), q.Name)
	}
	conflict := func(text string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, q.Name, fmt.Errorf(text, args...))
	}
	switch {
	case b.UID != "" && b.UID != stored.UID:
		return nil, conflict("the UID in the binding (%s) is not that of the pod (%s)", b.UID, stored.UID)
	case stored.DeletionTimestamp != nil:
		return nil, conflict("pod %s is being deleted, cannot be assigned to a host", stored.Name)
	case stored.Spec.NodeName != "":
		return nil, conflict("pod %s is already assigned to node %q", stored.Name, stored.Spec.NodeName)
	case len(stored.Spec.SchedulingGates) > 0:
		return nil, conflict("pod %s has non-empty .spec.schedulingGates", stored.Name)
	}
	pod := stored.DeepCopy()
	pod.Spec.NodeName, pod.Status.NominatedNodeName = b.Target.Name, ""
	pod.Annotations, pod.Labels = withOverrides(pod.Annotations, b.Annotations), withOverrides(pod.Labels, b.Labels)
	setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return pod, nil
}

// withOverrides returns have with the entries of more added; entries of more win. It changes have.
func withOverrides(existing, more map[string]string) map[string]string {
	if existing == nil && len(more) > 0 {
		existing = map[string]string{}
	}
	maps.Copy(existing, more)
	return existing
}

func setPodCondition(pod *corev1.Pod, c corev1.PodCondition) {
	i := slices.IndexFunc(pod.Status.Conditions,
		func(current corev1.PodCondition) bool { return current.Type == c.Type })
	if i >= 0 && pod.Status.Conditions[i].Status == c.Status {
		c.LastTransitionTime = pod.Status.Conditions[i].LastTransitionTime
	} else {
		c.LastTransitionTime = metav1.Now()
	}
	if i >= 0 {
		pod.Status.Conditions[i] = c
	} else {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
	}
}

// newInnerWrite prepares a write of another object within a request. The write is not authorized again, because the
// request's user has been authorized for the request itself.
func (s *Writes) newInnerWrite(
	ctx context.Context,
	q *request.Request,
	resource schema.GroupVersionResource,
	sub, namespace, name string,
) (*write, *request.Request, error) {
	target := s.server.Target(resource)
	if !target.IsServed {
		return nil, nil, fmt.Errorf("%s is not served", resource)
	}
	one := q.WithContext(ctx).WithTarget(target, sub, namespace, name)
	w, err := s.newWrite(one)
	return w, one, err
}
