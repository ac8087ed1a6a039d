package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kinds/core"
)

// priorityPlugin sets a pod's numeric priority from its priority class.
type priorityPlugin struct{ objects api.Objects }

var priorityClassesGR = resourceName{Group: schedulingv1.GroupName, Resource: "priorityclasses"}

// SystemPriorityClasses returns the priority classes that every cluster has.
func SystemPriorityClasses() []runtime.Object {
	class := func(name, description string) runtime.Object {
		return &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: core.SystemPriorities[name], Description: description,
		}
	}
	return []runtime.Object{
		class("system-cluster-critical", "Used for system critical pods that must run in the cluster, but can be "+
			"moved to another node if necessary."),
		class("system-node-critical", "Used for system critical pods that must not be moved from their current node."),
	}
}

// Admit sets priority and preemption policy, and refuses pods that have different ones.
func (p *priorityPlugin) Admit(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", podsGR) {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	name, value, policy := pod.Spec.PriorityClassName, int32(0), corev1.PreemptLowerPriority
	switch class, found := p.classOf(name); {
	case found:
		value, name = class.Value, class.Name
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	case name != "":
		number, builtin := core.SystemPriorities[name]
		if !builtin {
			return forbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
		}
		value = number
	}
	if set := pod.Spec.Priority; set != nil && *set != value {
		return forbidden(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority "+
			"admission controller computed %d from the given PriorityClass name", *set, value))
	}
	if set := pod.Spec.PreemptionPolicy; set != nil && *set != policy {
		return forbidden(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *set, policy))
	}
	pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = name, &value, &policy
	return nil
}

// classOf returns the named class. Without a name it returns the global default, the lowest if there are several.
func (p *priorityPlugin) classOf(name string) (*schedulingv1.PriorityClass, bool) {
	if name != "" {
		obj, ok := p.objects.Get(priorityClassesGR, "", name)
		if !ok {
			return nil, false
		}
		return obj.(*schedulingv1.PriorityClass), true
	}
	var best *schedulingv1.PriorityClass
	for _, obj := range p.objects.List(priorityClassesGR, "") {
		if c := obj.(*schedulingv1.PriorityClass); c.GlobalDefault && (best == nil || c.Value < best.Value) {
			best = c
		}
	}
	return best, best != nil
}

// Validate refuses a second global default.
func (p *priorityPlugin) Validate(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", priorityClassesGR) && !isOperation(a, "UPDATE", priorityClassesGR) {
		return nil
	}
	class, ok := a.Object.(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault {
		return nil
	}
	if other, found := p.classOf(""); found && other.Name != class.Name {
		return forbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist",
			other.Name))
	}
	return nil
}
