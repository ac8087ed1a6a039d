package policy

import (
	"errors"
	"slices"
	"strings"

	"clusterctl/daemons/nft"
)

// splitKey splits a key into namespace and name.
func splitKey(key string) (namespace, name string, ok bool) { return strings.Cut(key, "/") }

// useList returns the name of the list of policy chains for a pod in one direction, and adds a user to it. It returns
// "" if no policy isolates the pod in that direction.
func (n *Node) useList(p *podState, d direction) (string, error) {
	var chains []string
	uses := map[string]*policyChain{}
	for key := range p.selected {
		parsedPolicy := n.policy(key)
		if !parsedPolicy.isolates[d] {
			continue
		}
		ports := p.resolve(parsedPolicy.namedPorts)
		name := chainName(parsedPolicy, d, ports)
		chains = append(chains, name)
		uses[name] = &policyChain{policy: key, d: d, ports: ports}
	}
	if len(chains) == 0 {
		return "", nil
	}
	slices.Sort(chains)
	name := uniqueName(d.String()+"-pods", strings.Join(chains, " "), "")
	if l := n.lists[name]; l != nil {
		l.users++
		return name, nil
	}
	var failures []error
	for _, c := range chains {
		current := n.chains[c]
		if current == nil {
			current = uses[c]
			n.chains[c] = current
			failures = append(failures, n.setChain(c, current, n.policy(current.policy)))
		}
		current.users++
	}
	l := &chainList{d: d, chains: chains, users: 1}
	n.lists[name] = l
	failures = append(failures, n.putFragment(name, func(nft.Family) *nft.Fragment { return l.fragment(name) }))
	return name, errors.Join(failures...)
}

func (l *chainList) fragment(name string) *nft.Fragment {
	var rules []nft.Rule
	for _, c := range l.chains {
		rules = append(rules, nft.Rule{verdict("jump", c)})
		if l.d == directionEgress {
			rules = append(rules, nft.Rule{nft.Marked{Bits: egressMark}, returnVerdict})
		}
	}
	return &nft.Fragment{Chains: map[string]nft.Chain{name: {Rules: append(rules, nft.Rule{dropVerdict})}}}
}

// releaseList removes a user from a list. The last user removes the list.
func (n *Node) releaseList(name string) error {
	l := n.lists[name]
	if l == nil {
		return nil
	}
	if l.users--; l.users > 0 {
		return nil
	}
	delete(n.lists, name)
	failures := []error{n.putFragment(name, noFragment)}
	for _, c := range l.chains {
		current := n.chains[c]
		if current.users--; current.users > 0 {
			continue
		}
		delete(n.chains, c)
		failures = append(failures, n.putFragment(c, noFragment))
		for s := range current.uses {
			failures = append(failures, n.releaseSet(s))
		}
	}
	return errors.Join(failures...)
}
