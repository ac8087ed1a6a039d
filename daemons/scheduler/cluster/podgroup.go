package cluster

import (
	"maps"
	"slices"
	"strings"
)

// podGroup holds the pods of one namespace with the same labels: a selection contains either all or none of them.
type podGroup struct {
	key       string
	namespace string
	labels    map[string]string
	users     int
	selectors []*activeSelector // selectors that select its pods
	pods      []*Pod            // those on nodes
}

// activeSelector is a PodSelector that is in use by a table or a carried term.
type activeSelector struct {
	*PodSelector
	groups      map[*podGroup]bool
	tables      []*Table       // tables that count the selected pods
	termDomains []*termDomains // terms of pods on nodes that apply to the selected pods
}

func podGroupKey(namespace string, labels map[string]string) string {
	var b strings.Builder
	b.WriteString(namespace)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("\x00" + k + "\x00" + labels[k])
	}
	return b.String()
}

func (k *podGroup) add(p *Pod) {
	p.groupSlot = len(k.pods)
	k.pods = append(k.pods, p)
}

func (k *podGroup) remove(p *Pod) {
	last := len(k.pods) - 1
	moved := k.pods[last]
	k.pods[p.groupSlot], moved.groupSlot = moved, p.groupSlot
	k.pods[last] = nil
	k.pods = k.pods[:last]
}

// acquirePodGroup returns the group of a shape's pods, and creates it for the first shape. Each call needs a call of
// releasePodGroup.
func (c *Cluster) acquirePodGroup(s *Shape) *podGroup {
	k := c.podGroups[s.groupKey]
	if k == nil {
		k = &podGroup{key: s.groupKey, namespace: s.namespace, labels: s.labels}
		c.podGroups[s.groupKey] = k
		for name, value := range k.labels {
			at := label{name, value}
			if c.groupsByLabel[at] == nil {
				c.groupsByLabel[at] = map[*podGroup]bool{}
			}
			c.groupsByLabel[at][k] = true
			for ch := range c.selectorsByLabel[at] {
				c.connectIfSelected(k, ch)
			}
		}
		for ch := range c.selectorsWithoutLabel {
			c.connectIfSelected(k, ch)
		}
	}
	k.users++
	return k
}

// releasePodGroup removes a group when its last user has released it.
func (c *Cluster) releasePodGroup(k *podGroup) {
	if k.users--; k.users > 0 {
		return
	}
	delete(c.podGroups, k.key)
	for name, value := range k.labels {
		at := label{name, value}
		if delete(c.groupsByLabel[at], k); len(c.groupsByLabel[at]) == 0 {
			delete(c.groupsByLabel, at)
		}
	}
	for _, ch := range k.selectors {
		delete(ch.groups, k)
	}
}

// connectIfSelected connects a group of pods and a selector if the selector selects the group.
func (c *Cluster) connectIfSelected(k *podGroup, ch *activeSelector) {
	if ch.matches(k.namespace, k.labels, c.namespaces) {
		ch.groups[k] = true
		k.selectors = append(k.selectors, ch)
	}
}

// activeSelectorOf returns the activeSelector of a PodSelector. It exists as long as it has tables or carried terms.
func (c *Cluster) activeSelectorOf(a *PodSelector) *activeSelector {
	ch := c.selectors[a.id]
	if ch != nil {
		return ch
	}
	ch = &activeSelector{PodSelector: a, groups: map[*podGroup]bool{}}
	c.selectors[a.id] = ch
	if a.requiredLabel.key != "" {
		if c.selectorsByLabel[a.requiredLabel] == nil {
			c.selectorsByLabel[a.requiredLabel] = map[*activeSelector]bool{}
		}
		c.selectorsByLabel[a.requiredLabel][ch] = true
		for k := range c.groupsByLabel[a.requiredLabel] {
			c.connectIfSelected(k, ch)
		}
		return ch
	}
	c.selectorsWithoutLabel[ch] = true
	for _, k := range c.podGroups {
		c.connectIfSelected(k, ch)
	}
	return ch
}

func (c *Cluster) removeUnused(ch *activeSelector) {
	if len(ch.tables)+len(ch.termDomains) > 0 {
		return
	}
	delete(c.selectors, ch.id)
	delete(c.selectorsWithoutLabel, ch)
	if ch.requiredLabel.key != "" {
		if delete(c.selectorsByLabel[ch.requiredLabel], ch); len(c.selectorsByLabel[ch.requiredLabel]) == 0 {
			delete(c.selectorsByLabel, ch.requiredLabel)
		}
	}
	for k := range ch.groups {
		k.selectors = slices.DeleteFunc(k.selectors, func(o *activeSelector) bool { return o == ch })
	}
}

// Selects reports whether a PodSelector selects pods of a shape.
func (c *Cluster) Selects(a *PodSelector, s *Shape) bool {
	return a.matches(s.namespace, s.labels, c.namespaces)
}

// SetNamespace records a namespace's labels. It reports whether they have changed.
func (c *Cluster) SetNamespace(name string, labels map[string]string) bool {
	old, ok := c.namespaces[name]
	if ok && maps.Equal(old, labels) {
		return false
	}
	c.namespaces[name] = maps.Clone(labels)
	c.rematchNamespace(name)
	return true
}

// DeleteNamespace removes a namespace's labels.
func (c *Cluster) DeleteNamespace(name string) {
	delete(c.namespaces, name)
	c.rematchNamespace(name)
}

// rematchNamespace updates which selectors select the groups of a namespace after its labels changed.
func (c *Cluster) rematchNamespace(namespace string) {
	for _, ch := range c.selectors {
		if !ch.needsNamespaceLabels() {
			continue
		}
		for _, k := range c.podGroups {
			if k.namespace != namespace {
				continue
			}
			before, after := ch.groups[k], ch.matches(k.namespace, k.labels, c.namespaces)
			if before == after {
				continue
			}
			times := int32(1)
			if after {
				ch.groups[k] = true
				k.selectors = append(k.selectors, ch)
			} else {
				times = -1
				delete(ch.groups, k)
				k.selectors = slices.DeleteFunc(k.selectors, func(o *activeSelector) bool { return o == ch })
			}
			for _, p := range k.pods {
				for _, t := range ch.tables {
					t.add(p, p.node, times)
				}
			}
		}
	}
}
