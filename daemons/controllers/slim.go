package controllers

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slimmer drops from objects what no controller reads, before they are cached, and has them share what is equal in
// them. Each object is its cache's own when it comes here; afterwards nobody changes it, nor writes it back as it is.
type slimmer struct {
	mu     sync.Mutex
	shared sharer
}

func newSlimmer() *slimmer { return &slimmer{shared: newSharer()} }

// done marks what is small already, in a place that is empty then: a cache that starts has its objects from a list that
// has slimmed them itself. What is decoded has there either nothing or something.
var done = []metav1.ManagedFieldsEntry{}

// slim is the transformation of all shared caches.
func (s *slimmer) slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		if have := o.GetManagedFields(); have != nil && len(have) == 0 {
			return obj, nil
		}
		o.SetManagedFields(done)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		s.pod(o)
	case *corev1.Node:
		s.node(o)
	case *corev1.Secret:
		if o.Type != corev1.SecretTypeBootstrapToken {
			o.Data = nil
		}
	}
	return obj, nil
}

// pod makes a pod small. One of a StatefulSet stays whole, for that controller writes it back when it mends its
// identity.
func (s *slimmer) pod(p *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner != nil && owner.Kind == "StatefulSet" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slimSpec(&p.Spec)
	slimStatus(&p.Status, owner != nil && owner.Kind == "Job")
	s.shared.pod(p, owner)
}

// node makes a node small, and has it share with others what machines of one kind have in common.
func (s *slimmer) node(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Status.Images, n.Status.VolumesInUse, n.Status.NodeInfo = nil, nil, corev1.NodeSystemInfo{}
	s.shared.node(n)
}

// slimSpec leaves what says where a pod may be, what it takes, and which claims and Secrets it has.
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

// uninteresting are conditions that no controller looks at but for a Job's rules.
var uninteresting = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers,
	corev1.PodInitialized,
	corev1.ContainersReady,
	corev1.PodScheduled,
}

// runs is the state of all containers that run: whether one does is read, not since when.
var runs = &corev1.ContainerStateRunning{}

func slimStatus(status *corev1.PodStatus, allConditions bool) {
	status.HostIP, status.HostIPs, status.EphemeralContainerStatuses, status.Resources, status.AllocatedResources = "",
		nil, nil, nil, nil
	if !allConditions {
		var kept []corev1.PodCondition // most have one that is of interest
		for _, c := range status.Conditions {
			if !slices.Contains(uninteresting, c.Type) {
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
				state.Running = runs
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
