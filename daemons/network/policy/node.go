package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/nft"
)

// Node holds the rules of one machine. The methods named Set… change its inputs, and Update updates the tables. It is
// not safe for concurrent use.
//
// A pod may need addresses of a group that are not known yet. Until they are, the pod's rules in the tables stay
// unchanged, and a new pod gets no traffic.
type Node struct {
	machine         Machine
	tables          []*nft.Table
	changed         bool                                // since the last Update
	policies        map[string]map[string]*storedPolicy // by namespace and key
	pods            map[string]*podState                // by UID
	podsByNamespace map[string]map[string]*podState     // by namespace and UID
	claims          map[netip.Addr][]*podState          // pods that claim an address
	groups          map[string]*peerGroup               // by name
	chains          map[string]*policyChain             // chains of policies, by name
	lists           map[string]*chainList               // lists of chains, by name
	stalePolicies   map[string]bool                     // keys of policies whose chains are outdated
	pending         map[string]*podState                // pods whose rules are outdated, by UID
	neededGroups    map[string]bool                     // groups by name; nil if not computed
	report          func(p *networkingv1.NetworkPolicy, err error)
}

// storedPolicy is a policy. It is parsed when a pod of its namespace is on this machine.
type storedPolicy struct {
	object *networkingv1.NetworkPolicy
	parsed *parsedPolicy
}

// policyChain is a policy's chain in the tables for one direction, and for pods in which its named ports have the same
// numbers.
type policyChain struct {
	policy string
	d      direction
	ports  portNumbers
	users  int // number of lists
	uses   map[setName]bool
}

// chainList is the chain for a pod's packets in one direction. It jumps to the chains of the policies that select the
// pod, and drops the packets that none accepts.
type chainList struct {
	d      direction
	chains []string
	users  int // number of pods
}

// NewNode returns the rules of a machine without pods. report is called for each part of a policy that cannot be
// parsed.
func NewNode(report func(p *networkingv1.NetworkPolicy, err error)) *Node {
	return &Node{
		policies: map[string]map[string]*storedPolicy{}, pods: map[string]*podState{},
		podsByNamespace: map[string]map[string]*podState{},
		claims:          map[netip.Addr][]*podState{},
		groups:          map[string]*peerGroup{}, chains: map[string]*policyChain{}, lists: map[string]*chainList{},
		stalePolicies: map[string]bool{},
		pending:       map[string]*podState{},
		report:        report,
	}
}

// SetMachine sets the machine's networks and interfaces. If the machine gets the first network of a family, the family
// gets a table with all existing rules.
func (n *Node) SetMachine(m Machine) error {
	if slices.Equal(n.machine.Links, m.Links) && slices.Equal(n.machine.Networks, m.Networks) {
		return nil
	}
	n.machine = m
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		used := slices.ContainsFunc(m.Networks, func(p netip.Prefix) bool { return isOfFamily(p.Addr(), f) })
		at := slices.IndexFunc(n.tables, func(t *nft.Table) bool { return t.Family == f })
		switch {
		case at >= 0:
			if err := n.tables[at].Put("", baseFragment(f, m)); err != nil {
				return err
			}
		case used:
			t, err := nft.NewTable(f, TableName, baseFragment(f, m))
			if err != nil {
				return err
			}
			n.tables = append(n.tables, t)
			if err := n.fillTable(t); err != nil {
				return err
			}
		default:
			continue
		}
		n.changed = true
	}
	return nil
}

// fillTable adds all existing rules to a new table.
func (n *Node) fillTable(t *nft.Table) error {
	var failures []error
	for name, g := range n.groups {
		for s := range g.sets {
			failures = append(failures, t.Put(setKey(s), &nft.Fragment{Sets: map[string]nft.Set{s.String(): s.set()}}))
			for id, slice := range g.slices {
				failures = append(failures, t.Put(sliceKey(setName{name, s.port}, id), slice.fragment(s, t.Family)))
			}
		}
	}
	for name, c := range n.chains {
		f, _ := buildChain(n.policy(c.policy), c.d, t.Family, c.ports)
		failures = append(failures, t.Put(name, f))
	}
	for name, l := range n.lists {
		failures = append(failures, t.Put(name, l.fragment(name)))
	}
	for uid, p := range n.pods {
		failures = append(failures, t.Put(podKey(uid), p.fragment(t.Family, p.inTables)))
	}
	return errors.Join(failures...)
}

// Tables returns the tables of the machine's address families.
func (n *Node) Tables() []*nft.Table { return n.tables }

// putFragment sets a fragment in all tables.
func (n *Node) putFragment(key string, make func(nft.Family) *nft.Fragment) error {
	var failures []error
	for _, t := range n.tables {
		failures = append(failures, t.Put(key, make(t.Family)))
	}
	n.changed = true
	return errors.Join(failures...)
}

func noFragment(nft.Family) *nft.Fragment { return nil }

func podKey(uid string) string { return "pod/" + uid }

// SetPolicy sets a policy. p is nil if the policy was deleted.
func (n *Node) SetPolicy(namespace, name string, p *networkingv1.NetworkPolicy) {
	key := namespace + "/" + name
	before := n.policies[namespace][key]
	if before != nil && p != nil && equality.Semantic.DeepEqual(before.object.Spec, p.Spec) {
		return
	}
	if before == nil && p == nil {
		return
	}
	if p == nil {
		delete(n.policies[namespace], key)
		if len(n.policies[namespace]) == 0 {
			delete(n.policies, namespace)
		}
	} else {
		if n.policies[namespace] == nil {
			n.policies[namespace] = map[string]*storedPolicy{}
		}
		n.policies[namespace][key] = &storedPolicy{object: p}
	}
	if len(n.podsByNamespace[namespace]) == 0 && !n.hasDeletedPods(namespace) {
		return
	}
	n.stalePolicies[key] = true
	after := n.policy(key)
	for _, pod := range n.podsByNamespace[namespace] {
		selects := after != nil && after.pods.Matches(labels.Set(pod.Labels))
		if selects || pod.selected[key] {
			n.markOutdated(pod)
		}
		if selects {
			pod.selected[key] = true
		} else {
			delete(pod.selected, key)
		}
	}
}

// hasDeletedPods reports whether a deleted pod of a namespace is still in the tables. Its chains may be used again by a
// new pod.
func (n *Node) hasDeletedPods(namespace string) bool {
	for _, p := range n.pending {
		if p.deleted && p.Namespace == namespace {
			return true
		}
	}
	return false
}

// policy returns the parsed policy with a key, or nil if there is none.
func (n *Node) policy(key string) *parsedPolicy {
	namespace, _, _ := splitKey(key)
	s := n.policies[namespace][key]
	if s == nil {
		return nil
	}
	if s.parsed == nil {
		p, err := parsePolicy(s.object)
		if err != nil && n.report != nil {
			n.report(s.object, err)
		}
		if p == nil {
			p = &parsedPolicy{key: key, pods: labels.Nothing()}
		}
		s.parsed = p
	}
	return s.parsed
}

// markOutdated marks a pod's rules as outdated.
func (n *Node) markOutdated(p *podState) {
	n.pending[p.uid] = p
	n.neededGroups = nil
}

// SetPod sets a pod of this machine. pod is nil if it was deleted.
func (n *Node) SetPod(uid string, pod *Pod) {
	p := n.pods[uid]
	switch {
	case p == nil && pod == nil:
		return
	case p != nil && pod != nil && !p.deleted && p.Pod.hasSameRules(*pod):
		return
	case p == nil:
		p = &podState{uid: uid, selected: map[string]bool{}}
		n.pods[uid] = p
	}
	n.removeClaims(p)
	if pod == nil {
		p.deleted = true
		delete(n.podsByNamespace[p.Namespace], uid)
		if len(n.podsByNamespace[p.Namespace]) == 0 {
			delete(n.podsByNamespace, p.Namespace)
		}
		n.markOutdated(p)
		return
	}
	relabelled := p.deleted || n.podsByNamespace[pod.Namespace][uid] == nil || !labels.Equals(p.Labels, pod.Labels)
	p.Pod, p.deleted = *pod, false
	if n.podsByNamespace[p.Namespace] == nil {
		n.podsByNamespace[p.Namespace] = map[string]*podState{}
	}
	n.podsByNamespace[p.Namespace][uid] = p
	if relabelled {
		clear(p.selected)
		for key := range n.policies[p.Namespace] {
			if n.policy(key).pods.Matches(labels.Set(p.Labels)) {
				p.selected[key] = true
			}
		}
	}
	for _, a := range p.Addresses {
		for _, o := range n.claims[a] {
			n.markOutdated(o)
		}
		n.claims[a] = append(n.claims[a], p)
	}
	n.markOutdated(p)
}

// removeClaims removes a pod from the claims of its addresses.
func (n *Node) removeClaims(p *podState) {
	for _, a := range p.Addresses {
		left := slices.DeleteFunc(n.claims[a], func(o *podState) bool { return o == p })
		for _, o := range left {
			n.markOutdated(o)
		}
		if len(left) == 0 {
			delete(n.claims, a)
		} else {
			n.claims[a] = left
		}
	}
}

// ownedAddresses returns the addresses of a pod that no newer pod claims.
func (n *Node) ownedAddresses(p *podState) (list []netip.Addr) {
	for _, a := range p.Addresses {
		if !slices.ContainsFunc(n.claims[a], func(o *podState) bool { return p.isSupersededBy(o) }) {
			list = append(list, a)
		}
	}
	return list
}

// NeededGroups returns the names of the groups that rules need now or after the next Update. The caller must not change
// the map. It is the same map as before if nothing has changed.
func (n *Node) NeededGroups() map[string]bool {
	if n.neededGroups != nil {
		return n.neededGroups
	}
	names := map[string]bool{}
	for _, p := range n.pods {
		for _, g := range n.groupsOf(p) {
			names[g] = true
		}
	}
	for name, g := range n.groups {
		if len(g.sets) > 0 {
			names[name] = true
		}
	}
	n.neededGroups = names
	return names
}

// groupsOf returns the groups that a pod's policies name.
func (n *Node) groupsOf(p *podState) (names []string) {
	if p.deleted {
		return nil
	}
	for key := range p.selected {
		for _, groups := range n.policy(key).groups {
			names = append(names, groups...)
		}
	}
	return names
}

// hasGroups reports whether the addresses of all given groups are known.
func (n *Node) hasGroups(names []string) bool {
	return !slices.ContainsFunc(names,
		func(name string) bool { return n.groups[name] == nil || !n.groups[name].isKnown })
}

// PendingPods returns the number of pods whose rules are outdated because addresses of groups are not known yet.
func (n *Node) PendingPods() int { return len(n.pending) }

// IsCurrent reports whether the tables have the current rules of a pod.
func (n *Node) IsCurrent(uid string) bool {
	p := n.pods[uid]
	return p != nil && !p.deleted && n.pending[uid] == nil
}

// Update updates the tables, and reports whether they have changed since the last call.
func (n *Node) Update() (changed bool, err error) {
	var failures []error
	for key := range n.stalePolicies {
		done, err := n.rebuildPolicy(key)
		failures = append(failures, err)
		if done && err == nil {
			delete(n.stalePolicies, key)
		}
	}
	var ready []*podState
	for _, uid := range slices.Sorted(maps.Keys(n.pending)) {
		if p := n.pending[uid]; p.deleted || n.hasGroups(n.groupsOf(p)) {
			ready = append(ready, p)
		} else {
			failures = append(failures, n.dropLostAddresses(p))
		}
	}
	// Remove the old rules of all pods first, because an address may move from one pod to another. Fragments that end
	// up unchanged do not count as a change.
	for _, p := range ready {
		failures = append(failures, n.putFragment(podKey(p.uid), noFragment))
	}
	for _, p := range ready {
		failures = append(failures, n.putPod(p))
	}
	changed, n.changed = n.changed, false
	return changed, errors.Join(failures...)
}

// dropLostAddresses removes addresses from a pod's rules that it no longer has. It leaves the rest of the rules
// unchanged.
func (n *Node) dropLostAddresses(p *podState) error {
	own := n.ownedAddresses(p)
	keep := slices.DeleteFunc(slices.Clone(p.inTables), func(a netip.Addr) bool { return !slices.Contains(own, a) })
	if len(keep) == len(p.inTables) {
		return nil
	}
	p.inTables = keep
	return n.putFragment(podKey(p.uid), func(f nft.Family) *nft.Fragment { return p.fragment(f, keep) })
}

// rebuildPolicy updates the chains of a policy. If addresses of groups are not known yet, it stops and returns false,
// and the remaining chains stay unchanged. Chains that are no longer needed are removed with their last pod.
func (n *Node) rebuildPolicy(key string) (done bool, err error) {
	p := n.policy(key)
	if p == nil {
		return true, nil
	}
	var failures []error
	for name, c := range n.chains {
		if c.policy != key || !p.isolates[c.d] || chainName(p, c.d, c.ports) != name {
			continue
		}
		if !n.hasGroups(p.groups[c.d]) {
			return false, errors.Join(failures...)
		}
		failures = append(failures, n.setChain(name, c, p))
	}
	return true, errors.Join(failures...)
}

// setChain sets the chain of a policy in the tables.
func (n *Node) setChain(name string, c *policyChain, p *parsedPolicy) error {
	fragments, uses := map[nft.Family]*nft.Fragment{}, map[setName]bool{}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		fragment, some := buildChain(p, c.d, f, c.ports)
		fragments[f] = fragment
		maps.Copy(uses, some)
	}
	var failures []error
	for s := range uses {
		if !c.uses[s] {
			failures = append(failures, n.useSet(s))
		}
	}
	failures = append(failures, n.putFragment(name, func(f nft.Family) *nft.Fragment { return fragments[f] }))
	for s := range c.uses {
		if !uses[s] {
			failures = append(failures, n.releaseSet(s))
		}
	}
	c.uses = uses
	return errors.Join(failures...)
}

// putPod sets the rules of a pod in the tables.
func (n *Node) putPod(p *podState) error {
	var failures []error
	before := p.chains
	p.chains = [2]string{}
	own := n.ownedAddresses(p)
	if !p.deleted && len(own) > 0 {
		for _, d := range directions {
			name, err := n.useList(p, d)
			p.chains[d] = name
			failures = append(failures, err)
		}
	}
	for _, name := range before {
		failures = append(failures, n.releaseList(name))
	}
	if p.deleted {
		delete(n.pods, p.uid)
	} else {
		failures = append(failures,
			n.putFragment(podKey(p.uid), func(f nft.Family) *nft.Fragment { return p.fragment(f, own) }))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("work out the rules of the pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	p.inTables = own
	delete(n.pending, p.uid)
	return nil
}
