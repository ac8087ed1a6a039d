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

// interner lets cached objects share equal values, so that there is one copy of each.
//
// It also stores long-lived data together. Most of a decoded object is garbage, and a surviving text of 16 bytes among
// it would keep a page of 8 KiB in memory. So surviving data is copied to separate allocations.
type interner struct {
	latestPods map[family]weak.Pointer[corev1.Pod] // by family: the latest pod to share with
	// the length of latestPods at which entries of deleted pods are removed
	sweep int
	texts map[string]string
	// commonTexts holds texts that many objects share. They are separate from the texts of single objects: otherwise a
	// shared text would keep the texts of deleted objects in memory.
	commonTexts loop.TextArena
	podTexts    loop.TextArena

	// Arenas for values of other types.
	ips    loop.ValueArena[corev1.PodIP]
	owners loop.ValueArena[metav1.OwnerReference]
	states loop.ValueArena[corev1.PodCondition]
	times  loop.ValueArena[metav1.Time]
	health loop.ValueArena[corev1.NodeCondition]

	networks loop.ValueArena[string]

	// Values that pods of different owners, or nodes, have in common.
	containers  recentValues[[]corev1.Container]
	tolerations recentValues[[]corev1.Toleration]
	statuses    recentValues[[]corev1.ContainerStatus]
	flags       recentValues[*bool]
	numbers     recentValues[*int32]
	seconds     recentValues[*int64]
	preemption  recentValues[*corev1.PreemptionPolicy]
	amounts     recentValues[corev1.ResourceList]
}

// family identifies the pods of one controller in one place. The labels of the pods contain the place.
type family struct {
	owner        types.UID
	zone, region string
}

const (
	minSweep        = 1024
	maxTexts        = 16384 // mostly names of nodes
	maxTextLength   = 256   // bytes; longer texts are rarely shared
	maxRecentValues = 32
)

func newInterner() interner {
	return interner{latestPods: map[family]weak.Pointer[corev1.Pod]{}, sweep: minSweep, texts: map[string]string{}}
}

// sharePod lets a pod share equal values with other pods, first with those of its owner.
func (s *interner) sharePod(p *corev1.Pod, owner *metav1.OwnerReference) {
	p.Namespace, p.Spec.NodeName = s.internText(p.Namespace), s.internText(p.Spec.NodeName)
	p.Status.Phase, p.Status.QOSClass = corev1.PodPhase(s.internText(string(p.Status.Phase))), corev1.PodQOSClass(
		s.internText(string(p.Status.QOSClass)),
	)
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		c.Type, c.Status = corev1.PodConditionType(s.internText(string(c.Type))), corev1.ConditionStatus(
			s.internText(string(c.Status)),
		)
	}
	if owner != nil {
		s.shareWithFamily(owner.UID, p)
	}
	s.podTexts.Copy(&p.Name, (*string)(&p.UID), &p.ResourceVersion, &p.Status.PodIP)
	if len(p.Status.PodIPs) == 1 && p.Status.PodIPs[0].IP == p.Status.PodIP {
		p.Status.PodIPs[0].IP = p.Status.PodIP
		p.Status.PodIPs = s.ips.Copy(p.Status.PodIPs)
	}
}

// shareWithFamily lets a pod share values with the last pod of its family. Where they differ, or if that pod is gone,
// it shares values with pods of other families.
func (s *interner) shareWithFamily(owner types.UID, p *corev1.Pod) {
	node, host := p.Spec.NodeName, p.Spec.Hostname
	of := family{owner, s.internText(p.Labels[corev1.LabelTopologyZone]),
		s.internText(p.Labels[corev1.LabelTopologyRegion])}
	last := s.latestPods[of].Value()
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
	differs(shareIfEqual(&p.Namespace, &last.Namespace))
	differs(shareIfEqual(&p.Annotations, &last.Annotations))
	differs(shareIfEqual(&p.Finalizers, &last.Finalizers))
	differs(shareIfEqual(&p.Status.InitContainerStatuses, &last.Status.InitContainerStatuses))
	if differs(shareIfEqual(&p.Status.Conditions, &last.Status.Conditions)) {
		p.Status.Conditions = s.states.Copy(p.Status.Conditions)
	}
	if differs(shareIfEqual(&p.Status.StartTime, &last.Status.StartTime)) && p.Status.StartTime != nil {
		p.Status.StartTime = &s.times.Copy([]metav1.Time{*p.Status.StartTime})[0]
	}
	if differs(shareIfEqual(&p.Labels, &last.Labels)) {
		s.internMap(p.Labels)
	}
	if differs(shareIfEqual(&p.GenerateName, &last.GenerateName)) {
		s.commonTexts.Copy(&p.GenerateName)
	}
	if differs(shareIfEqual(&p.OwnerReferences, &last.OwnerReferences)) {
		p.OwnerReferences = s.internOwners(p.OwnerReferences)
	}
	if differs(shareIfEqual(&p.Status.ContainerStatuses, &last.Status.ContainerStatuses)) {
		p.Status.ContainerStatuses = s.statuses.intern(p.Status.ContainerStatuses)
	}
	if differs(shareIfEqual(&p.Spec, &last.Spec)) {
		s.shareSpec(&p.Spec)
	}
	p.Spec.NodeName, p.Spec.Hostname = node, host
	if changed {
		s.recordLatest(of, p)
	}
}

// recordLatest records p as the pod to share with for the next pod of its family, for as long as a cache holds p.
func (s *interner) recordLatest(of family, p *corev1.Pod) {
	s.latestPods[of] = weak.Make(p)
	if len(s.latestPods) <= s.sweep {
		return
	}
	maps.DeleteFunc(s.latestPods, func(_ family, p weak.Pointer[corev1.Pod]) bool { return p.Value() == nil })
	s.sweep = max(minSweep, 2*len(s.latestPods))
}

// internOwners lets the owner references of a pod share equal values with those of other pods.
func (s *interner) internOwners(of []metav1.OwnerReference) []metav1.OwnerReference {
	of = s.owners.Copy(of)
	for i := range of {
		o := &of[i]
		o.APIVersion, o.Kind = s.internText(o.APIVersion), s.internText(o.Kind)
		o.Controller, o.BlockOwnerDeletion = s.flags.intern(o.Controller), s.flags.intern(o.BlockOwnerDeletion)
		s.commonTexts.Copy(&o.Name, (*string)(&o.UID))
	}
	return of
}

// shareSpec lets pods of different owners share common values.
func (s *interner) shareSpec(p *corev1.PodSpec) {
	p.Containers, p.Tolerations = s.containers.intern(p.Containers), s.tolerations.intern(p.Tolerations)
	p.TerminationGracePeriodSeconds, p.Priority = s.seconds.intern(p.TerminationGracePeriodSeconds), s.numbers.intern(
		p.Priority,
	)
	p.EnableServiceLinks, p.PreemptionPolicy = s.flags.intern(p.EnableServiceLinks),
		s.preemption.intern(p.PreemptionPolicy)
	for _, text := range []*string{(*string)(&p.RestartPolicy), (*string)(&p.DNSPolicy), &p.ServiceAccountName,
		&p.DeprecatedServiceAccount,
		&p.SchedulerName, &p.PriorityClassName} {
		*text = s.internText(*text)
	}
}

// shareNode lets a node share values with other machines of the same kind. The rest of its surviving data is stored
// together.
func (s *interner) shareNode(n *corev1.Node) {
	status := &n.Status
	status.Capacity, status.Allocatable = s.internAmounts(status.Capacity), s.internAmounts(status.Allocatable)
	n.Name = s.internText(n.Name)
	s.internMap(n.Labels)
	s.internMap(n.Annotations)
	s.podTexts.Copy((*string)(&n.UID), &n.ResourceVersion, &n.Spec.PodCIDR)
	s.internCIDRs(n)
	status.Conditions = s.health.Copy(status.Conditions)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Status = corev1.NodeConditionType(s.internText(string(c.Type))), corev1.ConditionStatus(
			s.internText(string(c.Status)),
		)
		c.Reason, c.Message = s.internText(c.Reason), s.internText(c.Message)
	}
}

// internCIDRs stores a node's pod networks. The first one also appears in podCIDR and shares its text.
func (s *interner) internCIDRs(n *corev1.Node) {
	n.Spec.PodCIDRs = s.networks.Copy(n.Spec.PodCIDRs)
	for i := range n.Spec.PodCIDRs {
		if cidr := &n.Spec.PodCIDRs[i]; *cidr == n.Spec.PodCIDR {
			*cidr = n.Spec.PodCIDR
		} else {
			s.podTexts.Copy(cidr)
		}
	}
}

// internAmounts returns the shared copy of a resource list.
func (s *interner) internAmounts(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	return s.amounts.internBy(list, func(a, b corev1.ResourceList) bool {
		return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Format == b.Format && a.Equal(b) })
	})
}

// internMap replaces the texts of a map by their shared copies.
func (s *interner) internMap(of map[string]string) {
	for k, v := range of {
		of[s.internText(k)] = s.internText(v) // the new key is equal, so that no entry is added
	}
}

// internText returns the shared copy of a text.
func (s *interner) internText(text string) string {
	if text == "" || len(text) > maxTextLength {
		return text
	}
	if candidate, ok := s.texts[text]; ok {
		return candidate
	}
	if len(s.texts) >= maxTexts {
		clear(s.texts)
	}
	s.commonTexts.Copy(&text)
	s.texts[text] = text
	return text
}

// shareIfEqual replaces *is by *last if they are equal, and reports whether they were.
func shareIfEqual[T any](current, last *T) bool {
	if !reflect.DeepEqual(*current, *last) {
		return false
	}
	*current = *last
	return true
}

// recentValues holds the most recently seen values of a type, the latest first.
type recentValues[T any] struct{ values []T }

// intern returns the shared copy of a value.
func (f *recentValues[T]) intern(value T) T {
	return f.internBy(value, func(a, b T) bool { return reflect.DeepEqual(a, b) })
}

func (f *recentValues[T]) internBy(value T, equal func(a, b T) bool) T {
	at := 0
	for at < len(f.values) && !equal(f.values[at], value) {
		at++
	}
	switch {
	case at < len(f.values):
		value = f.values[at]
	case at < maxRecentValues:
		f.values = append(f.values, value)
	default:
		at--
	}
	copy(f.values[1:at+1], f.values[:at])
	f.values[0] = value
	return value
}
