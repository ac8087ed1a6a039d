package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod holds what the scheduler reads of a Pod object. Equal pods share their Shape.
type Pod struct {
	metav1.ObjectMeta // name, UID, version and times; labels and owners are in the Shape
	*Shape
	NodeName  string // spec.nodeName
	Nominated string // status.nominatedNodeName
	Started   int64  // Unix time in seconds, or never
	Gated     bool
	Finished  bool
	Preempted bool // is being deleted because the scheduler preempted it
	Extended  bool // status.extendedResourceClaimStatus is set
	Assumed   bool // counted on a node before the API shows it there
	Condition *corev1.PodCondition

	used, usedWithDefaults *Resources
	group                  *podGroup
	nominatedGroup         *podGroup // held while the pod is nominated
	node                   *Node
	slot, groupSlot        int
}

// NewPod converts a Pod object. Equal pods share a Shape in shapes.
func NewPod(pod *corev1.Pod, shapes *Shapes) *Pod {
	p := &Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Generation:        pod.Generation,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Shape: shapes.shapeOf(pod), NodeName: pod.Spec.NodeName, Nominated: pod.Status.NominatedNodeName,
		Started: notStarted,
		Gated:   len(pod.Spec.SchedulingGates) > 0, Extended: pod.Status.ExtendedResourceClaimStatus != nil,
		Finished: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	p.Labels = p.Shape.labels
	if pod.Status.StartTime != nil {
		p.Started = pod.Status.StartTime.Unix()
	}
	p.used, p.usedWithDefaults = &p.Shape.Requests, &p.Shape.onNode
	if hasReportedResources(pod) {
		p.setReportedResources(pod)
	}
	for i := range pod.Status.Conditions {
		switch c := &pod.Status.Conditions[i]; {
		case c.Type == corev1.DisruptionTarget:
			p.Preempted = pod.DeletionTimestamp != nil && c.Status == corev1.ConditionTrue &&
				c.Reason == corev1.PodReasonPreemptionByScheduler
		case c.Type == corev1.PodScheduled && pod.Spec.NodeName == "":
			p.Condition = c.DeepCopy()
		}
	}
	return p
}

// setReportedResources sets the resources that the kubelet reports for a pod, if they differ from its requests.
func (p *Pod) setReportedResources(pod *corev1.Pod) {
	if current := usageOf(pod, nil); !current.equal(p.used) {
		p.used = &current
	}
	if current := usageOf(pod, defaultRequestsOf(pod)); !current.equal(p.usedWithDefaults) {
		p.usedWithDefaults = &current
	}
}

// IsResized reports whether the resources of a pod on a node have changed.
func (p *Pod) IsResized(old *Pod) bool { return !p.used.equal(old.used) }

// Reference returns a reference to the pod for events.
func (p *Pod) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.ResourceVersion,
	}
}

// Key returns the pod's namespace/name.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }
