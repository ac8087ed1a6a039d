package networkpolicy

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/api/peers"
)

// groups holds the groups of pods that policies name. It finds the groups that a changed pod, namespace or policy
// affects.
type groups struct {
	mu     sync.Mutex
	byName map[string]*group
	// groups within one namespace: by the namespace's name, then by the group's name
	byScope    map[string]map[string]*group
	bySelector map[string]*scope // groups with a namespace selector, by the selector's text
}

// group is a peer group with its compiled selectors.
type group struct {
	peers.Group
	pods       labels.Selector
	namespaces labels.Selector // nil for a group within one namespace
	policies   int             // number of policies that name the group
}

// scope holds the groups that share a namespace selector, which is evaluated once for all of them.
type scope struct {
	namespaces labels.Selector
	groups     map[string]*group
}

func newGroups() *groups {
	return &groups{byName: map[string]*group{}, byScope: map[string]map[string]*group{},
		bySelector: map[string]*scope{}}
}

func (g *groups) get(name string) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[name]
}

// policyChanged adds the groups of a policy and releases those that the policy had before. It returns the names of the
// groups that were added or removed. old is nil for a new policy, updated for a deleted policy.
func (g *groups) policyChanged(old, updated *networkingv1.NetworkPolicy) (changed []string) {
	if old != nil && updated != nil && apiequality.Semantic.DeepEqual(old.Spec, updated.Spec) {
		return nil
	}
	named := map[string]int{} // by group: the change in the number of policies that name it
	of := map[string]peers.Group{}
	for policy, more := range map[*networkingv1.NetworkPolicy]int{old: -1, updated: 1} {
		if policy == nil {
			continue
		}
		for _, p := range peers.GroupsOf(policy) {
			name := p.Name()
			named[name] += more
			of[name] = p
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, more := range named {
		group := g.byName[name]
		if group == nil && more > 0 {
			group = compileGroup(of[name])
			g.add(name, group)
			changed = append(changed, name)
		}
		if group == nil {
			continue
		}
		if group.policies += more; group.policies <= 0 {
			g.remove(name, group)
			changed = append(changed, name)
		}
	}
	return changed
}

func compileGroup(p peers.Group) *group {
	g := &group{Group: p, pods: labels.Everything()}
	if p.PodSelector != nil {
		g.pods = compileSelector(p.PodSelector)
	}
	if p.NamespaceSelector != nil {
		g.namespaces = compileSelector(p.NamespaceSelector)
	}
	return g
}

// compileSelector compiles a label selector. An invalid one, which the API does not accept, matches nothing.
func compileSelector(s *metav1.LabelSelector) labels.Selector {
	compiled, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return compiled
}

func (g *groups) add(name string, new *group) {
	g.byName[name] = new
	if new.namespaces == nil {
		if g.byScope[new.Namespace] == nil {
			g.byScope[new.Namespace] = map[string]*group{}
		}
		g.byScope[new.Namespace][name] = new
		return
	}
	text := new.namespaces.String()
	if g.bySelector[text] == nil {
		g.bySelector[text] = &scope{new.namespaces, map[string]*group{}}
	}
	g.bySelector[text].groups[name] = new
}

func (g *groups) remove(name string, old *group) {
	delete(g.byName, name)
	if old.namespaces == nil {
		if delete(g.byScope[old.Namespace], name); len(g.byScope[old.Namespace]) == 0 {
			delete(g.byScope, old.Namespace)
		}
		return
	}
	text := old.namespaces.String()
	if delete(g.bySelector[text].groups, name); len(g.bySelector[text].groups) == 0 {
		delete(g.bySelector, text)
	}
}

// ofPod returns the names of the groups whose addresses change with a pod. old is nil for a new pod, updated for a
// deleted pod.
func (g *groups) ofPod(old, updated *corev1.Pod,
	namespaceLabels func(name string) (labels.Set, bool)) (names []string) {
	before, after := podAddresses(old), podAddresses(updated)
	moved := !slices.Equal(before, after) ||
		old != nil && updated != nil && old.UID != updated.UID // another pod of the same name may have other ports
	if len(before)+len(after) == 0 || !moved && maps.Equal(old.Labels, updated.Labels) {
		return nil
	}
	pod := updated
	if pod == nil {
		pod = old
	}
	look := func(all map[string]*group) {
		for name, one := range all {
			matchedBefore := len(before) > 0 && one.pods.Matches(labels.Set(old.Labels))
			matchesNow := len(after) > 0 && one.pods.Matches(labels.Set(updated.Labels))
			if matchedBefore != matchesNow || matchesNow && moved {
				names = append(names, name)
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	look(g.byScope[pod.Namespace])
	if len(g.bySelector) == 0 {
		return names
	}
	set, ok := namespaceLabels(pod.Namespace)
	for _, s := range g.bySelector {
		if s.namespaces.Empty() || ok && s.namespaces.Matches(set) {
			look(s.groups)
		}
	}
	return names
}

// ofNamespace returns the names of the groups that a namespace joins or leaves.
func (g *groups) ofNamespace(before, after *corev1.Namespace) (names []string) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.bySelector {
		matchedBefore := before != nil && s.namespaces.Matches(labels.Set(before.Labels))
		matchesNow := after != nil && s.namespaces.Matches(labels.Set(after.Labels))
		if matchedBefore == matchesNow || s.namespaces.Empty() {
			continue
		}
		for name := range s.groups {
			names = append(names, name)
		}
	}
	return names
}
