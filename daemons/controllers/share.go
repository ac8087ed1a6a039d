package controllers

import (
	"maps"
	"reflect"
	"strings"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sharer has cached objects share what is equal in them, so that there is one copy of it.
//
// It also keeps together what lives. What is decoded lies among garbage, since most of an object is dropped, and one text of 16 bytes
// that lives keeps a page of 8 KiB: so what lives is copied to places of its own.
type sharer struct {
	last  map[types.UID]weak.Pointer[corev1.Pod] // by controller: the pod of it to share with
	sweep int                                    // how long last may get before those are dropped whose pods are gone
	words map[string]string
	shelf strings.Builder // texts that live; what is full is forgotten here, and lives with the texts on it

	// Places for other things that live, likewise.
	ips    row[corev1.PodIP]
	owners row[metav1.OwnerReference]
	states row[corev1.PodCondition]
	times  row[metav1.Time]

	// What pods of different owners, and nodes, have in common.
	containers  few[[]corev1.Container]
	tolerations few[[]corev1.Toleration]
	statuses    few[[]corev1.ContainerStatus]
	flags       few[*bool]
	numbers     few[*int32]
	seconds     few[*int64]
	preemption  few[*corev1.PreemptionPolicy]
	amounts     few[corev1.ResourceList]
}

const (
	minSweep  = 1024
	maxWords  = 16384 // names of nodes, mostly
	maxWord   = 256   // bytes; what is longer few have in common
	shelfSize = 1024  // bytes; as much may be kept for one text that is left of them
	maxFew    = 32
)

func newSharer() sharer {
	return sharer{last: map[types.UID]weak.Pointer[corev1.Pod]{}, sweep: minSweep, words: map[string]string{}}
}

// pod has a pod share what is equal in it and in others, of its owner first.
func (s *sharer) pod(p *corev1.Pod, owner *metav1.OwnerReference) {
	p.Namespace, p.Spec.NodeName = s.word(p.Namespace), s.word(p.Spec.NodeName)
	p.Status.Phase, p.Status.QOSClass = corev1.PodPhase(s.word(string(p.Status.Phase))), corev1.PodQOSClass(s.word(string(p.Status.QOSClass)))
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		c.Type, c.Status = corev1.PodConditionType(s.word(string(c.Type))), corev1.ConditionStatus(s.word(string(c.Status)))
	}
	if owner != nil {
		s.sibling(owner.UID, p)
	}
	s.keep(&p.Name, (*string)(&p.UID), &p.ResourceVersion, &p.Status.PodIP)
	if len(p.Status.PodIPs) == 1 && p.Status.PodIPs[0].IP == p.Status.PodIP {
		p.Status.PodIPs[0].IP = p.Status.PodIP
		p.Status.PodIPs = s.ips.keep(p.Status.PodIPs)
	}
}

// sibling has a pod share with the last one of its owner, or with those of others where that is another or gone.
func (s *sharer) sibling(owner types.UID, p *corev1.Pod) {
	node, host := p.Spec.NodeName, p.Spec.Hostname
	last := s.last[owner].Value()
	changed := true
	if last != nil {
		p.Spec.NodeName, p.Spec.Hostname = last.Spec.NodeName, last.Spec.Hostname
		// The one that is replaced will be gone soon.
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
		p.Status.Conditions = s.states.keep(p.Status.Conditions)
	}
	if differs(same(&p.Status.StartTime, &last.Status.StartTime)) && p.Status.StartTime != nil {
		p.Status.StartTime = &s.times.keep([]metav1.Time{*p.Status.StartTime})[0]
	}
	if differs(same(&p.Labels, &last.Labels)) {
		p.Labels = s.texts(p.Labels)
	}
	if differs(same(&p.GenerateName, &last.GenerateName)) {
		s.keep(&p.GenerateName)
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
		s.remember(owner, p)
	}
}

// remember has the next pod of an owner share with p, for as long as a cache holds it.
func (s *sharer) remember(owner types.UID, p *corev1.Pod) {
	s.last[owner] = weak.Make(p)
	if len(s.last) <= s.sweep {
		return
	}
	maps.DeleteFunc(s.last, func(_ types.UID, p weak.Pointer[corev1.Pod]) bool { return p.Value() == nil })
	s.sweep = max(minSweep, 2*len(s.last))
}

// ownersOf has the owners of a pod share with those of other pods what says of what kind they are.
func (s *sharer) ownersOf(of []metav1.OwnerReference) []metav1.OwnerReference {
	of = s.owners.keep(of)
	for i := range of {
		o := &of[i]
		o.APIVersion, o.Kind = s.word(o.APIVersion), s.word(o.Kind)
		o.Controller, o.BlockOwnerDeletion = s.flags.one(o.Controller), s.flags.one(o.BlockOwnerDeletion)
		s.keep(&o.Name, (*string)(&o.UID))
	}
	return of
}

// spec has pods of different owners share what most have in common.
func (s *sharer) spec(p *corev1.PodSpec) {
	p.Containers, p.Tolerations = s.containers.one(p.Containers), s.tolerations.one(p.Tolerations)
	p.TerminationGracePeriodSeconds, p.Priority = s.seconds.one(p.TerminationGracePeriodSeconds), s.numbers.one(p.Priority)
	p.EnableServiceLinks, p.PreemptionPolicy = s.flags.one(p.EnableServiceLinks), s.preemption.one(p.PreemptionPolicy)
	for _, text := range []*string{(*string)(&p.RestartPolicy), (*string)(&p.DNSPolicy), &p.ServiceAccountName, &p.DeprecatedServiceAccount,
		&p.SchedulerName, &p.PriorityClassName} {
		*text = s.word(*text)
	}
}

// node has a node share what machines of one kind have in common.
func (s *sharer) node(n *corev1.Node) {
	status := &n.Status
	status.Capacity, status.Allocatable = s.amount(status.Capacity), s.amount(status.Allocatable)
	n.Name = s.word(n.Name)
	n.Labels, n.Annotations = s.texts(n.Labels), s.texts(n.Annotations)
	s.keep((*string)(&n.UID), &n.ResourceVersion)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Status = corev1.NodeConditionType(s.word(string(c.Type))), corev1.ConditionStatus(s.word(string(c.Status)))
		c.Reason, c.Message = s.word(c.Reason), s.word(c.Message)
	}
}

// amount returns the one copy that is kept of amounts which many nodes have.
func (s *sharer) amount(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	return s.amounts.oneBy(list, func(a, b corev1.ResourceList) bool {
		return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Format == b.Format && a.Equal(b) })
	})
}

// texts returns a map of texts that has the one copy of each which is kept.
func (s *sharer) texts(of map[string]string) map[string]string {
	if len(of) == 0 {
		return nil
	}
	out := make(map[string]string, len(of))
	for k, v := range of {
		out[s.word(k)] = s.word(v)
	}
	return out
}

// word returns the one copy that is kept of a text which many objects have.
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
	s.keep(&text)
	s.words[text] = text
	return text
}

// keep puts texts side by side with others that live.
func (s *sharer) keep(texts ...*string) {
	size := 0
	for _, text := range texts {
		size += len(*text)
	}
	if size > s.shelf.Cap()-s.shelf.Len() {
		s.shelf = strings.Builder{}
		s.shelf.Grow(max(size, shelfSize))
	}
	for _, text := range texts {
		from := s.shelf.Len()
		s.shelf.WriteString(*text)
		*text = s.shelf.String()[from:]
	}
}

// same puts last in the place of what is equal to it, and says whether it was.
func same[T any](is, last *T) bool {
	if !reflect.DeepEqual(*is, *last) {
		return false
	}
	*is = *last
	return true
}

// row is a place for lists that live. What is full is forgotten here, and lives with the lists in it.
type row[T any] struct{ all []T }

// keep puts a list beside others that live.
func (r *row[T]) keep(list []T) []T {
	if len(list) == 0 {
		return list
	}
	if len(list) > cap(r.all)-len(r.all) {
		r.all = make([]T, 0, max(len(list), shelfSize/int(reflect.TypeFor[T]().Size())))
	}
	from := len(r.all)
	r.all = append(r.all, list...)
	return r.all[from:len(r.all):len(r.all)]
}

// few are the values of a kind that were met last, the latest first.
type few[T any] struct{ known []T }

// one returns the one copy of a value that is kept.
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
