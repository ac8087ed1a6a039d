package route

// paths is a map from paths to the rules of each that never changes. One of many paths shares with the next all but
// what is about paths that change: thousands of Ingresses may name one host.
type paths struct {
	few  map[string][]*Rule // nil when there are many
	many names[ruleList]
}

type ruleList []*Rule

// manyPaths is how many paths are copied as one for a change. More are in parts, which cost a host of few paths more
// than they spare.
const manyPaths = 64

func (p *paths) of(path []byte) []*Rule {
	if p.few != nil {
		return p.few[string(path)]
	}
	if list := p.many.ofBytes(path); list != nil {
		return *list
	}
	return nil
}

func (p *paths) empty() bool { return len(p.few) == 0 && p.many.size == 0 }

// with returns paths of which some have other rules; none for a path that goes.
func (p paths) with(changes map[string][]*Rule) paths {
	if len(changes) == 0 {
		return p
	}
	if p.many.size == 0 && len(p.few)+len(changes) <= manyPaths {
		next := copied(p.few)
		for path, rules := range changes {
			if next[path] = rules; len(rules) == 0 {
				delete(next, path)
			}
		}
		return paths{few: next}
	}
	lists := make(map[string]*ruleList, len(p.few)+len(changes))
	for _, from := range []map[string][]*Rule{p.few, changes} {
		for path, rules := range from {
			if lists[path] = nil; len(rules) > 0 {
				list := ruleList(rules)
				lists[path] = &list
			}
		}
	}
	return paths{many: p.many.with(lists)}
}
