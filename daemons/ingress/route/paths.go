package route

// paths is an immutable map from paths to their rules. A changed copy of a large one shares the unchanged parts,
// because thousands of Ingresses may use one host.
type paths struct {
	small map[string][]*Rule // nil if many is used
	large names[ruleList]
}

type ruleList []*Rule

// maxSmallPaths is up to how many paths are copied as a whole for a change. More are split into parts, which would not
// pay off for few paths.
const maxSmallPaths = 64

func (p *paths) get(path []byte) []*Rule {
	if p.small != nil {
		return p.small[string(path)]
	}
	if list := p.large.getBytes(path); list != nil {
		return *list
	}
	return nil
}

func (p *paths) isEmpty() bool { return len(p.small) == 0 && p.large.size == 0 }

// with returns a copy with changed rules. A path without rules is removed.
func (p paths) with(changes map[string][]*Rule) paths {
	if len(changes) == 0 {
		return p
	}
	if p.large.size == 0 && len(p.small)+len(changes) <= maxSmallPaths {
		next := copyMap(p.small)
		for path, rules := range changes {
			if next[path] = rules; len(rules) == 0 {
				delete(next, path)
			}
		}
		return paths{small: next}
	}
	lists := make(map[string]*ruleList, len(p.small)+len(changes))
	for _, from := range []map[string][]*Rule{p.small, changes} {
		for path, rules := range from {
			if lists[path] = nil; len(rules) > 0 {
				list := ruleList(rules)
				lists[path] = &list
			}
		}
	}
	return paths{large: p.large.with(lists)}
}
