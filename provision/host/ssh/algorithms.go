package ssh

import (
	"fmt"
	"slices"
	"strings"
)

// algorithms is a list of algorithms in the syntax of ssh_config: names with wildcards, which replace the default list,
// or which change it if the list begins with +, - or ^.
type algorithms struct {
	value, position string
}

// selectFrom returns the algorithms that the list selects. supported are all algorithms.
func (a algorithms) selectFrom(defaults, supported []string) ([]string, error) {
	if a.value == "" {
		return defaults, nil
	}
	sign, names := a.value[0], strings.Split(strings.TrimLeft(a.value, "+-^"), ",")
	var named []string
	for _, n := range names {
		for _, t := range supported {
			if matchesWildcard(n, t) && !slices.Contains(named, t) {
				named = append(named, t)
			}
		}
	}
	rest := slices.DeleteFunc(slices.Clone(defaults), func(u string) bool { return slices.Contains(named, u) })
	list := named
	switch sign {
	case '+':
		list = slices.Clone(defaults)
		for _, n := range named {
			if !slices.Contains(list, n) {
				list = append(list, n)
			}
		}
	case '-':
		list = rest
	case '^':
		list = append(named, rest...)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: clusterctl supports none of the algorithms %q. It supports %s", a.position, a.value,
			strings.Join(defaults, ", "))
	}
	return list, nil
}
