package ssh

import (
	"fmt"
	"slices"
	"strings"
)

// match reports whether a Match line applies. If never is true, the file is included from a block that does not apply,
// and match runs no command.
func (r *configReader) match(words []string, at string, never bool) (bool, error) {
	applies := !never
	for i := 0; i < len(words); i++ {
		criterion, negated := strings.CutPrefix(words[i], "!")
		criterion, value, given := strings.Cut(criterion, "=")
		criterion = strings.ToLower(criterion)
		var holds bool
		switch criterion {
		case "all":
			rest := slices.DeleteFunc(slices.Clone(words), func(w string) bool {
				w = strings.ToLower(strings.TrimPrefix(w, "!"))
				return w == "canonical" || w == "final"
			})
			if len(rest) != 1 || negated || given {
				return false, fmt.Errorf("%s: Match all stands alone, or after final or canonical", at)
			}
			holds = true
		case "final":
			r.needsFinalPass = true
			holds = r.isFinalPass
		case "canonical":
			holds = r.isFinalPass
		default:
			if !given {
				if i++; i == len(words) {
					return false, fmt.Errorf("%s: Match %s has no value", at, criterion)
				}
				value = words[i]
			}
			var err error
			if holds, err = r.matchesCriterion(criterion, value, at, applies); err != nil {
				return false, err
			}
		}
		applies = applies && holds != negated
	}
	return applies, nil
}

func (r *configReader) matchesCriterion(criterion, value, at string, applies bool) (bool, error) {
	list := strings.Split(value, ",")
	switch criterion {
	case "host":
		host, err := r.hostName()
		return matchesList(strings.Split(strings.ToLower(value), ","), strings.ToLower(host)), err
	case "originalhost":
		return matchesList(strings.Split(strings.ToLower(value), ","), strings.ToLower(r.name)), nil
	case "user":
		return matchesList(list, firstNonEmpty(r.values["user"].firstWord(), r.user.user)), nil
	case "localuser":
		return matchesList(list, r.user.user), nil
	case "tagged":
		return matchesList(list, r.values["tag"].firstWord()), nil
	case "exec":
		if !applies {
			return false, nil
		}
		host, err := r.hostName()
		if err != nil {
			return false, err
		}
		command, err := r.tokens(host).expand(value)
		if err != nil {
			return false, fmt.Errorf("%s: Match exec: %w", at, err)
		}
		return r.run(command), nil
	}
	return false, fmt.Errorf("%s: Match %s is not carried out. host, originalhost, user, localuser, tagged, exec, "+
		"final, canonical and all are", at, criterion)
}

// matchesList reports whether a name matches a list of patterns. A matching negated pattern excludes the name.
func matchesList(patterns []string, name string) bool {
	found := false
	for _, p := range patterns {
		pattern, negated := strings.CutPrefix(p, "!")
		if !matchesWildcard(pattern, name) {
			continue
		}
		if negated {
			return false
		}
		found = true
	}
	return found
}

// matchesWildcard reports whether a name matches a pattern with * and ?. Brackets have no special meaning.
func matchesWildcard(pattern, name string) bool {
	star, from := -1, 0
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
