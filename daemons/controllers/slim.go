package controllers

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// slimmer drops from objects what no controller reads, before they are cached, and has pods of one owner share what is equal in
// them. Each object is its cache's own when it comes here; afterwards nobody changes it, nor writes it back as it is.
type slimmer struct {
	mu      sync.Mutex
	samples *lru.Cache // *sample by the UID of who controls a pod
	words   map[string]string
	amounts [maxAmounts]corev1.ResourceList // what nodes have, the last found first: few kinds of machines make many nodes
}

// sample is what the last pod of an owner was like.
type sample struct {
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
	finalizers          []string
	namespace, prefix   string
	spec                corev1.PodSpec
	statuses, inits     []corev1.ContainerStatus
	conditions          []corev1.PodCondition
	started             *metav1.Time
}

const (
	maxSamples = 4096
	maxWords   = 16384 // names of nodes, mostly
	maxWord    = 256   // bytes; what is longer few have in common
	maxAmounts = 32
)

func newSlimmer() *slimmer { return &slimmer{samples: lru.New(maxSamples), words: map[string]string{}} }

// slim is the transformation of all shared caches.
func (s *slimmer) slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
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

// pod makes a pod small. One of a StatefulSet stays whole, for that controller writes it back when it mends its identity.
func (s *slimmer) pod(p *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner != nil && owner.Kind == "StatefulSet" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slimSpec(&p.Spec)
	slimStatus(&p.Status, owner != nil && owner.Kind == "Job")
	p.Status.Phase, p.Status.QOSClass = corev1.PodPhase(s.word(string(p.Status.Phase))), corev1.PodQOSClass(s.word(string(p.Status.QOSClass)))
	p.Spec.NodeName = s.word(p.Spec.NodeName)
	if len(p.Status.PodIPs) > 0 && p.Status.PodIPs[0].IP == p.Status.PodIP {
		p.Status.PodIPs[0].IP = p.Status.PodIP
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		c.Type, c.Status = corev1.PodConditionType(s.word(string(c.Type))), corev1.ConditionStatus(s.word(string(c.Status)))
	}
	if owner != nil {
		s.share(owner.UID, p)
	}
}

// node makes a node small, and has it share with others what machines of one kind have in common.
func (s *slimmer) node(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := &n.Status
	status.Images, status.VolumesInUse, status.NodeInfo = nil, nil, corev1.NodeSystemInfo{}
	status.Capacity, status.Allocatable = s.amount(status.Capacity), s.amount(status.Allocatable)
	n.Name = s.word(n.Name)
	n.Labels, n.Annotations = s.texts(n.Labels), s.texts(n.Annotations)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Status = corev1.NodeConditionType(s.word(string(c.Type))), corev1.ConditionStatus(s.word(string(c.Status)))
		c.Reason, c.Message = s.word(c.Reason), s.word(c.Message)
	}
}

// amount returns the one copy that is kept of amounts which many nodes have.
func (s *slimmer) amount(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	at := slices.IndexFunc(s.amounts[:], func(known corev1.ResourceList) bool {
		return maps.EqualFunc(known, list, func(a, b resource.Quantity) bool { return a.Format == b.Format && a.Equal(b) })
	})
	if at >= 0 {
		list = s.amounts[at]
	} else {
		at = len(s.amounts) - 1
	}
	copy(s.amounts[1:at+1], s.amounts[:at])
	s.amounts[0] = list
	return list
}

// texts returns a map of texts that has the one copy of each which is kept.
func (s *slimmer) texts(of map[string]string) map[string]string {
	if len(of) == 0 {
		return nil
	}
	out := make(map[string]string, len(of))
	for k, v := range of {
		out[s.word(k)] = s.word(v)
	}
	return out
}

// share has a pod share what is equal in it and in the last one of its owner.
func (s *slimmer) share(owner types.UID, p *corev1.Pod) {
	last := &sample{}
	if known, ok := s.samples.Get(owner); ok {
		last = known.(*sample)
	} else {
		s.samples.Add(owner, last)
	}
	same(&p.Labels, &last.labels)
	same(&p.Annotations, &last.annotations)
	same(&p.OwnerReferences, &last.owners)
	same(&p.Finalizers, &last.finalizers)
	same(&p.Namespace, &last.namespace)
	same(&p.GenerateName, &last.prefix)
	same(&p.Status.ContainerStatuses, &last.statuses)
	same(&p.Status.InitContainerStatuses, &last.inits)
	same(&p.Status.Conditions, &last.conditions)
	same(&p.Status.StartTime, &last.started)
	node, host := p.Spec.NodeName, p.Spec.Hostname
	p.Spec.NodeName, p.Spec.Hostname = "", ""
	same(&p.Spec, &last.spec)
	p.Spec.NodeName, p.Spec.Hostname = node, host
}

// same puts the last value in the place of one that is equal to it.
func same[T any](is, last *T) {
	if reflect.DeepEqual(*is, *last) {
		*is = *last
	} else {
		*last = *is
	}
}

// word returns the one copy that is kept of a text which many objects have.
func (s *slimmer) word(text string) string {
	if text == "" || len(text) > maxWord {
		return text
	}
	if known, ok := s.words[text]; ok {
		return known
	}
	if len(s.words) >= maxWords {
		clear(s.words)
	}
	s.words[text] = text
	return text
}

// slimSpec leaves what says where a pod may be, what it takes, and which claims and Secrets it has.
func slimSpec(spec *corev1.PodSpec) {
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		secret := v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil })
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
			containers[i] = corev1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Env: c.Env, EnvFrom: c.EnvFrom, Resources: c.Resources,
				RestartPolicy: c.RestartPolicy}
		}
	}
}

// uninteresting are conditions that no controller looks at but for a Job's rules.
var uninteresting = []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodScheduled}

func slimStatus(status *corev1.PodStatus, allConditions bool) {
	status.HostIP, status.HostIPs, status.EphemeralContainerStatuses = "", nil, nil
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
			statuses[i] = corev1.ContainerStatus{Name: c.Name, Ready: c.Ready, RestartCount: c.RestartCount, Started: c.Started,
				State: corev1.ContainerState{Terminated: c.State.Terminated}, AllocatedResources: c.AllocatedResources, Resources: c.Resources}
		}
	}
}
