package controllers

import (
	"maps"
	"reflect"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/controllers/loop"
)

// sharer lets cached objects share equal values, so that there is one copy of each.
//
// It also stores long-lived data together. Most of a decoded object is garbage, and a surviving text of 16 bytes among
// it would keep a page of 8 KiB in memory. So surviving data is copied to separate allocations.
type sharer struct {
	last  map[family]weak.Pointer[corev1.Pod] // by family: the latest pod to share with
	sweep int                                 // the length of last at which entries of deleted pods are removed
	words map[string]string
	// common holds texts that many objects share. They are separate from the texts of single objects: otherwise a
	// shared text would keep the texts of deleted objects in memory.
	common loop.Shelf
	shelf  loop.Shelf

	// The same for other values.
	ips    loop.Row[corev1.PodIP]
	owners loop.Row[metav1.OwnerReference]
	states loop.Row[corev1.PodCondition]
	times  loop.Row[metav1.Time]
	health loop.Row[corev1.NodeCondition]

	networks loop.Row[string]

	// Values that pods of different owners, or nodes, have in common.
	containers  few[[]corev1.Container]
	tolerations few[[]corev1.Toleration]
	statuses    few[[]corev1.ContainerStatus]
	flags       few[*bool]
	numbers     few[*int32]
	seconds     few[*int64]
	preemption  few[*corev1.PreemptionPolicy]
	amounts     few[corev1.ResourceList]
}

// family identifies the pods of one controller in one place. The labels of the pods contain the place.
type family struct {
	owner        types.UID
	zone, region string
}

const (
	minSweep = 1024
	maxWords = 16384 // mostly names of nodes
	maxWord  = 256   // bytes; longer texts are rarely shared
	maxFew   = 32
)

func newSharer() sharer {
	return sharer{last: map[family]weak.Pointer[corev1.Pod]{}, sweep: minSweep, words: map[string]string{}}
}

// pod lets a pod share equal values with other pods, first with those of its owner.
func (s *sharer) pod(p *corev1.Pod, owner *metav1.OwnerReference) {
	p.Namespace, p.Spec.NodeName = s.word(p.Namespace), s.word(p.Spec.NodeName)
	p.Status.Phase, p.Status.QOSClass = corev1.PodPhase(
		s.word(string(p.Status.Phase)),
	), corev1.PodQOSClass(
		s.word(string(p.Status.QOSClass)),
	)
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		c.Type, c.Status = corev1.PodConditionType(
			s.word(string(c.Type)),
		), corev1.ConditionStatus(
			s.word(string(c.Status)),
		)
	}
	if owner != nil {
		s.sibling(owner.UID, p)
	}
	s.shelf.Keep(&p.Name, (*string)(&p.UID), &p.ResourceVersion, &p.Status.PodIP)
	if len(p.Status.PodIPs) == 1 && p.Status.PodIPs[0].IP == p.Status.PodIP {
		p.Status.PodIPs[0].IP = p.Status.PodIP
		p.Status.PodIPs = s.ips.Keep(p.Status.PodIPs)
	}
}

// sibling lets a pod share values with the last pod of its family. Where they differ, or if that pod is gone, it shares
// values with pods of other families.
func (s *sharer) sibling(owner types.UID, p *corev1.Pod) {
	node, host := p.Spec.NodeName, p.Spec.Hostname
	of := family{owner, s.word(p.Labels[corev1.LabelTopologyZone]), s.word(p.Labels[corev1.LabelTopologyRegion])}
	last := s.last[of].Value()
	changed := true
	if last != nil {
		p.Spec.NodeName, p.Spec.Hostname = last.Spec.NodeName, last.Spec.Hostname
		// An older version of the same pod will be gone soon.
		changed = last.UID == p.UID
	} else {
		last = &corev1.Pod{}
	}
	differs := func(same bool) bool {
		changed = changed || !same
		return !same
	}
	differs(same(&p.Namespace, &last.Namespace))
	differs(same(&p.Annotations, &last.Annotations))
	differs(same(&p.Finalizers, &last.Finalizers))
	differs(same(&p.Status.InitContainerStatuses, &last.Status.InitContainerStatuses))
	if differs(same(&p.Status.Conditions, &last.Status.Conditions)) {
		p.Status.Conditions = s.states.Keep(p.Status.Conditions)
	}
	if differs(same(&p.Status.StartTime, &last.Status.StartTime)) && p.Status.StartTime != nil {
		p.Status.StartTime = &s.times.Keep([]metav1.Time{*p.Status.StartTime})[0]
	}
	if differs(same(&p.Labels, &last.Labels)) {
		s.intern(p.Labels)
	}
	if differs(same(&p.GenerateName, &last.GenerateName)) {
		s.common.Keep(&p.GenerateName)
	}
	if differs(same(&p.OwnerReferences, &last.OwnerReferences)) {
		p.OwnerReferences = s.ownersOf(p.OwnerReferences)
	}
	if differs(same(&p.Status.ContainerStatuses, &last.Status.ContainerStatuses)) {
		p.Status.ContainerStatuses = s.statuses.one(p.Status.ContainerStatuses)
	}
	if differs(same(&p.Spec, &last.Spec)) {
		s.spec(&p.Spec)
	}
	p.Spec.NodeName, p.Spec.Hostname = node, host
	if changed {
		s.remember(of, p)
	}
}

// remember records p as the pod to share with for the next pod of its family, for as long as a cache holds p.
func (s *sharer) remember(of family, p *corev1.Pod) {
	s.last[of] = weak.Make(p)
	if len(s.last) <= s.sweep {
		return
	}
	maps.DeleteFunc(s.last, func(_ family, p weak.Pointer[corev1.Pod]) bool { return p.Value() == nil })
	s.sweep = max(minSweep, 2*len(s.last))
}

// ownersOf lets the owner references of a pod share equal values with those of other pods.
func (s *sharer) ownersOf(of []metav1.OwnerReference) []metav1.OwnerReference {
	of = s.owners.Keep(of)
	for i := range of {
		o := &of[i]
		o.APIVersion, o.Kind = s.word(o.APIVersion), s.word(o.Kind)
		o.Controller, o.BlockOwnerDeletion = s.flags.one(o.Controller), s.flags.one(o.BlockOwnerDeletion)
		s.common.Keep(&o.Name, (*string)(&o.UID))
	}
	return of
}

// spec lets pods of different owners share common values.
func (s *sharer) spec(p *corev1.PodSpec) {
	p.Containers, p.Tolerations = s.containers.one(p.Containers), s.tolerations.one(p.Tolerations)
	p.TerminationGracePeriodSeconds, p.Priority = s.seconds.one(
		p.TerminationGracePeriodSeconds,
	), s.numbers.one(
		p.Priority,
	)
	p.EnableServiceLinks, p.PreemptionPolicy = s.flags.one(p.EnableServiceLinks), s.preemption.one(p.PreemptionPolicy)
	for _, text := range []*string{(*string)(&p.RestartPolicy), (*string)(&p.DNSPolicy), &p.ServiceAccountName,
		&p.DeprecatedServiceAccount,
		&p.SchedulerName, &p.PriorityClassName} {
		*text = s.word(*text)
	}
}

// node lets a node share values with other machines of the same kind. The rest of its surviving data is stored
// together.
func (s *sharer) node(n *corev1.Node) {
	status := &n.Status
	status.Capacity, status.Allocatable = s.amount(status.Capacity), s.amount(status.Allocatable)
	n.Name = s.word(n.Name)
	s.intern(n.Labels)
	s.intern(n.Annotations)
	s.shelf.Keep((*string)(&n.UID), &n.ResourceVersion, &n.Spec.PodCIDR)
	s.cidrs(n)
	status.Conditions = s.health.Keep(status.Conditions)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Status = corev1.NodeConditionType(
			s.word(string(c.Type)),
		), corev1.ConditionStatus(
			s.word(string(c.Status)),
		)
		c.Reason, c.Message = s.word(c.Reason), s.word(c.Message)
	}
}

// cidrs stores a node's pod networks. The first one also appears in podCIDR and shares its text.
func (s *sharer) cidrs(n *corev1.Node) {
	n.Spec.PodCIDRs = s.networks.Keep(n.Spec.PodCIDRs)
	for i := range n.Spec.PodCIDRs {
		if cidr := &n.Spec.PodCIDRs[i]; *cidr == n.Spec.PodCIDR {
			*cidr = n.Spec.PodCIDR
		} else {
			s.shelf.Keep(cidr)
		}
	}
}

// amount returns the shared copy of a resource list.
func (s *sharer) amount(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	return s.amounts.oneBy(list, func(a, b corev1.ResourceList) bool {
		return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Format == b.Format && a.Equal(b) })
	})
}

// intern replaces the texts of a map by their shared copies.
func (s *sharer) intern(of map[string]string) {
	for k, v := range of {
		of[s.word(k)] = s.word(v) // the new key is equal, so that no entry is added
	}
}

// word returns the shared copy of a text.
func (s *sharer) word(text string) string {
	if text == "" || len(text) > maxWord {
		return text
	}
	if known, ok := s.words[text]; ok {
		return known
	}
	if len(s.words) >= maxWords {
		clear(s.words)
	}
	s.common.Keep(&text)
	s.words[text] = text
	return text
}

// same replaces *is by *last if they are equal, and reports whether they were.
func same[T any](is, last *T) bool {
	if !reflect.DeepEqual(*is, *last) {
		return false
	}
	*is = *last
	return true
}

// few holds the most recently seen values of a type, the latest first.
type few[T any] struct{ known []T }

// one returns the shared copy of a value.
func (f *few[T]) one(value T) T {
	return f.oneBy(value, func(a, b T) bool { return reflect.DeepEqual(a, b) })
}

func (f *few[T]) oneBy(value T, equal func(a, b T) bool) T {
	at := 0
	for at < len(f.known) && !equal(f.known[at], value) {
		at++
	}
	switch {
	case at < len(f.known):
		value = f.known[at]
	case at < maxFew:
		f.known = append(f.known, value)
	default:
		at--
	}
	copy(f.known[1:at+1], f.known[:at])
	f.known[0] = value
	return value
}
