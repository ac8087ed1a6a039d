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

// Node is the rules of one machine. It is told of what there is, and Update brings the tables up to date. It is not for
// several goroutines at once.
//
// A pod's rules in the tables stay as they are, and a new pod stays out, as long as the addresses of a group that it
// needs have not been heard of.
type Node struct {
	machine  Machine
	tables   []*nft.Table
	changed  bool                          // the tables are not what they were
	policies map[string]map[string]*stored // by namespace and key
	pods     map[string]*pod               // by UID
	here     map[string]map[string]*pod    // by namespace and UID
	claims   map[netip.Addr][]*pod         // who says that it has an address
	groups   map[string]*group             // by name
	chains   map[string]*chain             // of policies, by name
	lists    map[string]*list              // of chains, by name
	stale    map[string]bool               // policies whose chains are not what they say, by key
	waiting  map[string]*pod               // pods whose rules are not what is known, by UID
	needed   map[string]bool               // groups, by name; nil for not known
	report   func(p *networkingv1.NetworkPolicy, err error)
}

// stored is a policy, which is read when a pod of its namespace is here.
type stored struct {
	object *networkingv1.NetworkPolicy
	read   *policy
}

// chain is what the tables have of a policy in one direction, for pods that read its named ports alike.
type chain struct {
	policy string
	d      direction
	ports  resolved
	users  int // lists
	uses   map[setName]bool
}

// list is the chain that a pod's packets go through: the chains of the policies that select it, at the end of which
// they are dropped.
type list struct {
	d      direction
	chains []string
	users  int // pods
}

// NewNode returns the rules of a machine without pods. report is told of what in a policy cannot be read.
func NewNode(report func(p *networkingv1.NetworkPolicy, err error)) *Node {
	return &Node{
		policies: map[string]map[string]*stored{}, pods: map[string]*pod{}, here: map[string]map[string]*pod{},
		claims: map[netip.Addr][]*pod{},
		groups: map[string]*group{}, chains: map[string]*chain{}, lists: map[string]*list{}, stale: map[string]bool{},
		waiting: map[string]*pod{},
		report:  report,
	}
}

// SetMachine says what the machine is. A family that it has a network of gets a table with what is there already.
func (n *Node) SetMachine(m Machine) error {
	if slices.Equal(n.machine.Links, m.Links) && slices.Equal(n.machine.Networks, m.Networks) {
		return nil
	}
	n.machine = m
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		used := slices.ContainsFunc(m.Networks, func(p netip.Prefix) bool { return of(p.Addr(), f) })
		at := slices.IndexFunc(n.tables, func(t *nft.Table) bool { return t.Family == f })
		switch {
		case at >= 0:
			if err := n.tables[at].Put("", base(f, m)); err != nil {
				return err
			}
		case used:
			t, err := nft.NewTable(f, TableName, base(f, m))
			if err != nil {
				return err
			}
			n.tables = append(n.tables, t)
			if err := n.fill(t); err != nil {
				return err
			}
		default:
			continue
		}
		n.changed = true
	}
	return nil
}

// fill puts everything into a table that has come late.
func (n *Node) fill(t *nft.Table) error {
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
		f, _ := build(n.policy(c.policy), c.d, t.Family, c.ports)
		failures = append(failures, t.Put(name, f))
	}
	for name, l := range n.lists {
		failures = append(failures, t.Put(name, l.fragment(name)))
	}
	for uid, p := range n.pods {
		failures = append(failures, t.Put(podKey(uid), p.fragment(t.Family, p.placed)))
	}
	return errors.Join(failures...)
}

// Tables are the tables of the families that the machine has.
func (n *Node) Tables() []*nft.Table { return n.tables }

// put puts a fragment into all tables.
func (n *Node) put(key string, make func(nft.Family) *nft.Fragment) error {
	var failures []error
	for _, t := range n.tables {
		failures = append(failures, t.Put(key, make(t.Family)))
	}
	n.changed = true
	return errors.Join(failures...)
}

func nothing(nft.Family) *nft.Fragment { return nil }

func podKey(uid string) string { return "pod/" + uid }

// SetPolicy says what a policy is, nil for one that is gone.
func (n *Node) SetPolicy(namespace, name string, p *networkingv1.NetworkPolicy) {
	key := namespace + "/" + name
	was := n.policies[namespace][key]
	if was != nil && p != nil && equality.Semantic.DeepEqual(was.object.Spec, p.Spec) {
		return
	}
	if was == nil && p == nil {
		return
	}
	if p == nil {
		delete(n.policies[namespace], key)
		if len(n.policies[namespace]) == 0 {
			delete(n.policies, namespace)
		}
	} else {
		if n.policies[namespace] == nil {
			n.policies[namespace] = map[string]*stored{}
		}
		n.policies[namespace][key] = &stored{object: p}
	}
	if len(n.here[namespace]) == 0 && !n.leaves(namespace) {
		return
	}
	n.stale[key] = true
	is := n.policy(key)
	for _, pod := range n.here[namespace] {
		selects := is != nil && is.pods.Matches(labels.Set(pod.Labels))
		if selects || pod.selected[key] {
			n.touch(pod)
		}
		if selects {
			pod.selected[key] = true
		} else {
			delete(pod.selected, key)
		}
	}
}

// leaves reports whether a deleted pod of a namespace is still in the tables. Its chains may be used again by a new
// pod.
func (n *Node) leaves(namespace string) bool {
	for _, p := range n.waiting {
		if p.gone && p.Namespace == namespace {
			return true
		}
	}
	return false
}

// policy returns a policy by its key, nil when there is none.
func (n *Node) policy(key string) *policy {
	namespace, _, _ := cut(key)
	s := n.policies[namespace][key]
	if s == nil {
		return nil
	}
	if s.read == nil {
		p, err := read(s.object)
		if err != nil && n.report != nil {
			n.report(s.object, err)
		}
		if p == nil {
			p = &policy{key: key, pods: labels.Nothing()}
		}
		s.read = p
	}
	return s.read
}

// touch notes that a pod's rules are to be worked out.
func (n *Node) touch(p *pod) {
	n.waiting[p.uid] = p
	n.needed = nil
}

// SetPod says what a pod of this machine is, nil for one that is gone.
func (n *Node) SetPod(uid string, is *Pod) {
	p := n.pods[uid]
	switch {
	case p == nil && is == nil:
		return
	case p != nil && is != nil && !p.gone && p.Pod.same(*is):
		return
	case p == nil:
		p = &pod{uid: uid, selected: map[string]bool{}}
		n.pods[uid] = p
	}
	n.unclaim(p)
	if is == nil {
		p.gone = true
		delete(n.here[p.Namespace], uid)
		if len(n.here[p.Namespace]) == 0 {
			delete(n.here, p.Namespace)
		}
		n.touch(p)
		return
	}
	relabelled := p.gone || n.here[is.Namespace][uid] == nil || !labels.Equals(p.Labels, is.Labels)
	p.Pod, p.gone = *is, false
	if n.here[p.Namespace] == nil {
		n.here[p.Namespace] = map[string]*pod{}
	}
	n.here[p.Namespace][uid] = p
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
			n.touch(o)
		}
		n.claims[a] = append(n.claims[a], p)
	}
	n.touch(p)
}

// unclaim takes a pod from among those that say that they have an address.
func (n *Node) unclaim(p *pod) {
	for _, a := range p.Addresses {
		left := slices.DeleteFunc(n.claims[a], func(o *pod) bool { return o == p })
		for _, o := range left {
			n.touch(o)
		}
		if len(left) == 0 {
			delete(n.claims, a)
		} else {
			n.claims[a] = left
		}
	}
}

// own are the addresses of a pod that no newer pod has.
func (n *Node) own(p *pod) (list []netip.Addr) {
	for _, a := range p.Addresses {
		if !slices.ContainsFunc(n.claims[a], func(o *pod) bool { return p.before(o) }) {
			list = append(list, a)
		}
	}
	return list
}

// Needed are the groups whose addresses rules need, or will need, by name. They are not to be changed, and the same as
// before if nothing has changed.
func (n *Node) Needed() map[string]bool {
	if n.needed != nil {
		return n.needed
	}
	names := map[string]bool{}
	for _, p := range n.pods {
		for _, g := range n.needs(p) {
			names[g] = true
		}
	}
	for name, g := range n.groups {
		if len(g.sets) > 0 {
			names[name] = true
		}
	}
	n.needed = names
	return names
}

// needs are the groups that a pod's policies name.
func (n *Node) needs(p *pod) (names []string) {
	if p.gone {
		return nil
	}
	for key := range p.selected {
		for _, groups := range n.policy(key).groups {
			names = append(names, groups...)
		}
	}
	return names
}

// heard reports whether the addresses of all groups are known.
func (n *Node) heard(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return n.groups[name] == nil || !n.groups[name].heard })
}

// Waiting is how many pods have other rules than they should, because addresses of groups have not been heard of.
func (n *Node) Waiting() int { return len(n.waiting) }

// Has reports whether the tables have a pod as it was last told of.
func (n *Node) Has(uid string) bool {
	p := n.pods[uid]
	return p != nil && !p.gone && n.waiting[uid] == nil
}

// Update brings the tables up to date, and reports whether they are others than at the last time.
func (n *Node) Update() (changed bool, err error) {
	var failures []error
	for key := range n.stale {
		done, err := n.rebuild(key)
		failures = append(failures, err)
		if done && err == nil {
			delete(n.stale, key)
		}
	}
	var ready []*pod
	for _, uid := range slices.Sorted(maps.Keys(n.waiting)) {
		if p := n.waiting[uid]; p.gone || n.heard(n.needs(p)) {
			ready = append(ready, p)
		} else {
			failures = append(failures, n.yield(p))
		}
	}
	// An address may go from one pod to another: it is taken away first. What stays is no change.
	for _, p := range ready {
		failures = append(failures, n.put(podKey(p.uid), nothing))
	}
	for _, p := range ready {
		failures = append(failures, n.place(p))
	}
	changed, n.changed = n.changed, false
	return changed, errors.Join(failures...)
}

// yield removes a pod's former addresses from its rules, and leaves the rest of the rules as they are.
func (n *Node) yield(p *pod) error {
	own := n.own(p)
	keep := slices.DeleteFunc(slices.Clone(p.placed), func(a netip.Addr) bool { return !slices.Contains(own, a) })
	if len(keep) == len(p.placed) {
		return nil
	}
	p.placed = keep
	return n.put(podKey(p.uid), func(f nft.Family) *nft.Fragment { return p.fragment(f, keep) })
}

// rebuild updates the chains of a policy, unless addresses of groups are missing. Chains that it does not need any more
// go with their last pod.
func (n *Node) rebuild(key string) (done bool, err error) {
	p := n.policy(key)
	if p == nil {
		return true, nil
	}
	var failures []error
	for name, c := range n.chains {
		if c.policy != key || !p.isolates[c.d] || chainOf(p, c.d, c.ports) != name {
			continue
		}
		if !n.heard(p.groups[c.d]) {
			return false, errors.Join(failures...)
		}
		failures = append(failures, n.setChain(name, c, p))
	}
	return true, errors.Join(failures...)
}

// setChain puts the chain of a policy into the tables.
func (n *Node) setChain(name string, c *chain, p *policy) error {
	fragments, uses := map[nft.Family]*nft.Fragment{}, map[setName]bool{}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		fragment, some := build(p, c.d, f, c.ports)
		fragments[f] = fragment
		maps.Copy(uses, some)
	}
	var failures []error
	for s := range uses {
		if !c.uses[s] {
			failures = append(failures, n.useSet(s))
		}
	}
	failures = append(failures, n.put(name, func(f nft.Family) *nft.Fragment { return fragments[f] }))
	for s := range c.uses {
		if !uses[s] {
			failures = append(failures, n.leaveSet(s))
		}
	}
	c.uses = uses
	return errors.Join(failures...)
}

// place puts into the tables what is known of a pod.
func (n *Node) place(p *pod) error {
	var failures []error
	was := p.chains
	p.chains = [2]string{}
	own := n.own(p)
	if !p.gone && len(own) > 0 {
		for _, d := range directions {
			name, err := n.useList(p, d)
			p.chains[d] = name
			failures = append(failures, err)
		}
	}
	for _, name := range was {
		failures = append(failures, n.leaveList(name))
	}
	if p.gone {
		delete(n.pods, p.uid)
	} else {
		failures = append(failures,
			n.put(podKey(p.uid), func(f nft.Family) *nft.Fragment { return p.fragment(f, own) }))
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("work out the rules of the pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	p.placed = own
	delete(n.waiting, p.uid)
	return nil
}
