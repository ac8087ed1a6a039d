package cluster

import (
	"maps"
	"slices"
	"strings"
)

// kind holds the pods of one namespace with the same labels: a selection contains either all or none of them.
type kind struct {
	key       string
	namespace string
	labels    map[string]string
	held      int
	choices   []*choice // choices that select its pods
	pods      []*Pod    // those on nodes
}

// choice is an About that is in use by a table or a carried term.
type choice struct {
	*About
	kinds   map[*kind]bool
	tables  []*Table   // tables that count the selected pods
	carried []*carried // terms of pods on nodes that apply to the selected pods
}

func kindKey(namespace string, labels map[string]string) string {
	var b strings.Builder
	b.WriteString(namespace)
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("\x00" + k + "\x00" + labels[k])
	}
	return b.String()
}

func (k *kind) add(p *Pod) {
	p.kindSlot = len(k.pods)
	k.pods = append(k.pods, p)
}

func (k *kind) remove(p *Pod) {
	last := len(k.pods) - 1
	moved := k.pods[last]
	k.pods[p.kindSlot], moved.kindSlot = moved, p.kindSlot
	k.pods[last] = nil
	k.pods = k.pods[:last]
}

// holdKind returns the kind of a shape's pods. It is retained until releaseKind was called as often.
func (c *Cluster) holdKind(s *Shape) *kind {
	k := c.kinds[s.kindKey]
	if k == nil {
		k = &kind{key: s.kindKey, namespace: s.namespace, labels: s.labels}
		c.kinds[s.kindKey] = k
		for name, value := range k.labels {
			at := label{name, value}
			if c.labelled[at] == nil {
				c.labelled[at] = map[*kind]bool{}
			}
			c.labelled[at][k] = true
			for ch := range c.pinned[at] {
				c.join(k, ch)
			}
		}
		for ch := range c.unpinned {
			c.join(k, ch)
		}
	}
	k.held++
	return k
}

// releaseKind removes a kind that is no longer held.
func (c *Cluster) releaseKind(k *kind) {
	if k.held--; k.held > 0 {
		return
	}
	delete(c.kinds, k.key)
	for name, value := range k.labels {
		at := label{name, value}
		if delete(c.labelled[at], k); len(c.labelled[at]) == 0 {
			delete(c.labelled, at)
		}
	}
	for _, ch := range k.choices {
		delete(ch.kinds, k)
	}
}

// join connects a choice and a kind if the choice selects the kind.
func (c *Cluster) join(k *kind, ch *choice) {
	if ch.chooses(k.namespace, k.labels, c.namespaces) {
		ch.kinds[k] = true
		k.choices = append(k.choices, ch)
	}
}

// choice returns the choice of an About. It exists as long as it has tables or carried terms.
func (c *Cluster) choice(a *About) *choice {
	ch := c.choices[a.id]
	if ch != nil {
		return ch
	}
	ch = &choice{About: a, kinds: map[*kind]bool{}}
	c.choices[a.id] = ch
	if a.pin.key != "" {
		if c.pinned[a.pin] == nil {
			c.pinned[a.pin] = map[*choice]bool{}
		}
		c.pinned[a.pin][ch] = true
		for k := range c.labelled[a.pin] {
			c.join(k, ch)
		}
		return ch
	}
	c.unpinned[ch] = true
	for _, k := range c.kinds {
		c.join(k, ch)
	}
	return ch
}

func (c *Cluster) dropUnused(ch *choice) {
	if len(ch.tables)+len(ch.carried) > 0 {
		return
	}
	delete(c.choices, ch.id)
	delete(c.unpinned, ch)
	if ch.pin.key != "" {
		if delete(c.pinned[ch.pin], ch); len(c.pinned[ch.pin]) == 0 {
			delete(c.pinned, ch.pin)
		}
	}
	for k := range ch.kinds {
		k.choices = slices.DeleteFunc(k.choices, func(o *choice) bool { return o == ch })
	}
}

// Chooses reports whether an About selects pods of a shape.
func (c *Cluster) Chooses(a *About, s *Shape) bool {
	return a.chooses(s.namespace, s.labels, c.namespaces)
}

// SetNamespace records a namespace's labels. It reports whether they have changed.
func (c *Cluster) SetNamespace(name string, labels map[string]string) bool {
	old, known := c.namespaces[name]
	if known && maps.Equal(old, labels) {
		return false
	}
	c.namespaces[name] = maps.Clone(labels)
	c.chooseAgain(name)
	return true
}

// DropNamespace removes a namespace's labels.
func (c *Cluster) DropNamespace(name string) {
	delete(c.namespaces, name)
	c.chooseAgain(name)
}

// chooseAgain updates which choices select the kinds of a namespace after its labels changed.
func (c *Cluster) chooseAgain(namespace string) {
	for _, ch := range c.choices {
		if !ch.byNamespace() {
			continue
		}
		for _, k := range c.kinds {
			if k.namespace != namespace {
				continue
			}
			was, is := ch.kinds[k], ch.chooses(k.namespace, k.labels, c.namespaces)
			if was == is {
				continue
			}
			times := int32(1)
			if is {
				ch.kinds[k] = true
				k.choices = append(k.choices, ch)
			} else {
				times = -1
				delete(ch.kinds, k)
				k.choices = slices.DeleteFunc(k.choices, func(o *choice) bool { return o == ch })
			}
			for _, p := range k.pods {
				for _, t := range ch.tables {
					t.add(p, p.node, times)
				}
			}
		}
	}
}
