package controllers

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slimmer removes what no controller reads from objects before they are cached, and lets them share equal values. An
// object belongs to its cache when it is passed in. Afterwards it must not be changed, and must not be written back as
// a whole.
type slimmer struct {
	mu       sync.Mutex
	interner interner
}

func newSlimmer() *slimmer { return &slimmer{interner: newInterner()} }

// slimmedMark marks objects that are slimmed already: a starting cache passes the objects of its initial list, which
// was slimmed itself, once more. The mark is an empty, non-nil managedFields, which decoding never produces.
var slimmedMark = []metav1.ManagedFieldsEntry{}

// slim is the transform function of all shared caches.
func (s *slimmer) slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		if existing := o.GetManagedFields(); existing != nil && len(existing) == 0 {
			return obj, nil
		}
		o.SetManagedFields(slimmedMark)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		s.slimPod(o)
	case *corev1.Node:
		s.slimNode(o)
	case *corev1.Secret:
		if o.Type != corev1.SecretTypeBootstrapToken {
			o.Data = nil
		}
	}
	return obj, nil
}

// slimPod slims a pod. A StatefulSet's pod stays whole, because that controller writes it back to repair its identity
// labels.
func (s *slimmer) slimPod(p *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner != nil && owner.Kind == "StatefulSet" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slimSpec(&p.Spec)
	slimStatus(&p.Status, owner != nil && owner.Kind == "Job")
	s.interner.sharePod(p, owner)
}

// slimNode slims a node, and lets it share values with other machines of the same kind.
func (s *slimmer) slimNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Status.Images, n.Status.VolumesInUse, n.Status.NodeInfo = nil, nil, corev1.NodeSystemInfo{}
	s.interner.shareNode(n)
}

// slimSpec retains the fields that determine where a pod may run, what it uses, and its claims and Secrets.
func slimSpec(spec *corev1.PodSpec) {
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		secret := v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil })
		return v.PersistentVolumeClaim == nil && v.Ephemeral == nil && v.Secret == nil && !secret
	})
	spec.Volumes = slices.Clip(spec.Volumes)
	if len(spec.Volumes) == 0 {
		spec.Volumes = nil
	}
	spec.EphemeralContainers, spec.SecurityContext, spec.DNSConfig, spec.HostAliases = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			containers[i] = corev1.Container{
				Name:          c.Name,
				Image:         c.Image,
				Ports:         c.Ports,
				Env:           c.Env,
				EnvFrom:       c.EnvFrom,
				Resources:     c.Resources,
				RestartPolicy: c.RestartPolicy,
			}
		}
	}
}

// jobConditions lists conditions that only the rules of Jobs read.
var jobConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers,
	corev1.PodInitialized,
	corev1.ContainersReady,
	corev1.PodScheduled,
}

// runningState is the state of all running containers. Controllers read only whether a container runs, not since when.
var runningState = &corev1.ContainerStateRunning{}

func slimStatus(status *corev1.PodStatus, allConditions bool) {
	status.HostIP, status.HostIPs, status.EphemeralContainerStatuses, status.Resources, status.AllocatedResources = "",
		nil, nil, nil, nil
	if !allConditions {
		var kept []corev1.PodCondition // most pods have one relevant condition
		for _, c := range status.Conditions {
			if !slices.Contains(jobConditions, c.Type) {
				kept = append(kept, c)
			}
		}
		status.Conditions = kept
	}
	for _, statuses := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			c := &statuses[i]
			state := corev1.ContainerState{Terminated: c.State.Terminated}
			if c.State.Running != nil {
				state.Running = runningState
			}
			statuses[i] = corev1.ContainerStatus{
				Name:               c.Name,
				Ready:              c.Ready,
				RestartCount:       c.RestartCount,
				Started:            c.Started,
				State:              state,
				AllocatedResources: c.AllocatedResources,
				Resources:          c.Resources,
			}
		}
	}
}
