package kubelet

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/kubelet/pod"
)

// podEvents records events about pods. Events about a static pod concern its mirror.
type podEvents struct {
	recorder record.EventRecorder
	mirrors  *mirrorPods
}

// record records an event about a pod.
func (e podEvents) record(p *corev1.Pod, kind, reason, format string, args ...any) {
	if p.Annotations[pod.SourceAnnotation] == "file" {
		if m := e.mirrors.find(p); m != nil {
			p = m
		}
	}
	ref := &corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       p.Namespace,
		Name:            p.Name,
		UID:             p.UID,
		ResourceVersion: p.ResourceVersion,
	}
	e.recorder.Eventf(ref, kind, reason, format, args...)
}

// recordContainer records an event about one container of a pod.
func (e podEvents) recordContainer(p *corev1.Pod, spec *corev1.Container, kind, reason, format string,
	args ...any) {
	path := "spec.containers{" + spec.Name + "}"
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == spec.Name {
			path = "spec.initContainers{" + spec.Name + "}"
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == spec.Name {
			path = "spec.ephemeralContainers{" + spec.Name + "}"
		}
	}
	ref := &corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       p.Namespace,
		Name:            p.Name,
		UID:             p.UID,
		ResourceVersion: p.ResourceVersion,
		FieldPath:       path,
	}
	e.recorder.Eventf(ref, kind, reason, format, args...)
}
