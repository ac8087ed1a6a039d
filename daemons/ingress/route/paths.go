package route

// paths is an immutable map from paths to their rules. A changed copy of a large one shares the unchanged parts,
// because thousands of Ingresses may use one host.
type paths struct {
	few  map[string][]*Rule // nil if many is used
	many names[ruleList]
}

type ruleList []*Rule

// manyPaths is up to how many paths are copied as a whole for a change. More are split into parts, which would not pay
// off for few paths.
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

// with returns a copy with changed rules. A path without rules is removed.
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
