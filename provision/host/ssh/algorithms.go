package ssh

import (
	"fmt"
	"slices"
	"strings"
)

// algorithms is a list as ssh_config has it: names with wildcards, or with +, - or ^ before them a change of what is
// usual.
type algorithms struct {
	said, at string
}

// of returns the list's meaning, of those that there are.
func (a algorithms) of(usual, there []string) ([]string, error) {
	if a.said == "" {
		return usual, nil
	}
	sign, names := a.said[0], strings.Split(strings.TrimLeft(a.said, "+-^"), ",")
	var named []string
	for _, n := range names {
		for _, t := range there {
			if wildcard(n, t) && !slices.Contains(named, t) {
				named = append(named, t)
			}
		}
	}
	rest := slices.DeleteFunc(slices.Clone(usual), func(u string) bool { return slices.Contains(named, u) })
	list := named
	switch sign {
	case '+':
		list = slices.Clone(usual)
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
		return nil, fmt.Errorf(
			"%s: of the algorithms %q clusterctl has none. It has %s",
			a.at,
			a.said,
			strings.Join(usual, ", "),
		)
	}
	return list, nil
}
