package why

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// field names a field of a pod's spec where it can be changed: in the template of its controller, or in the
// pod itself.
func (x templateExplainer) field(ctx context.Context, p *corev1.Pod, field string) string {
	owner, path := x.owner(ctx, p)
	return path + "." + field + " of " + owner.String()
}

// owner returns the object that has a pod's template, and the path of the pod's spec in it.
func (x templateExplainer) owner(ctx context.Context, p *corev1.Pod) (Ref, string) {
	const template = "spec.template.spec"
	of := metav1.GetControllerOf(p)
	if of == nil {
		return refTo("Pod", p), "spec"
	}
	owner := Ref{Kind: of.Kind, Namespace: p.Namespace, Name: of.Name}
	switch of.Kind {
	case "ReplicaSet":
		sets, _ := x.replicaSets(ctx, p.Namespace)
		for _, set := range sets {
			if above := metav1.GetControllerOf(set); set.Name == of.Name && above != nil {
				owner.Kind, owner.Name = above.Kind, above.Name
			}
		}
	case "Job":
		jobs, _ := x.jobs(ctx, p.Namespace)
		for _, job := range jobs {
			if above := metav1.GetControllerOf(job); job.Name == of.Name && above != nil {
				owner.Kind, owner.Name = above.Kind, above.Name
				return owner, "spec.jobTemplate." + template
			}
		}
	case "Node":
		return refTo("Pod", p), "spec"
	}
	return owner, template
}

// editCommand returns the command that opens the object with a pod's template.
func (x templateExplainer) editCommand(ctx context.Context, p *corev1.Pod) string {
	owner, _ := x.owner(ctx, p)
	return "kubectl edit " + kubectlName(owner)
}

// setCommand returns a command of kubectl set for the object with a pod's template. Fields that a pod without a
// controller cannot change need another pod.
func (x templateExplainer) setCommand(ctx context.Context, p *corev1.Pod, what, container, values string) string {
	owner, _ := x.owner(ctx, p)
	if owner.Kind == "Pod" && what != "image" || owner.Kind == "Job" {
		return fmt.Sprintf("kubectl replace --force -n %s -f FILE", p.Namespace)
	}
	if what == "image" {
		return fmt.Sprintf("kubectl set image %s %s=%s", kubectlName(owner), container, values)
	}
	return strings.TrimSpace(fmt.Sprintf("kubectl set %s %s -c %s %s", what, kubectlName(owner), container, values))
}
