package gitsource

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// SemanticVersion is a version by https://semver.org. Build metadata is ignored.
type SemanticVersion struct {
	Major, Minor, Patch uint64
	Pre                 []string // identifiers of a pre-release; nil for a release
}

var versionPattern = regexp.MustCompile(`^v?(\d{1,18})\.(\d{1,18})\.(\d{1,18})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)

// ParseSemanticVersion parses a version, which may begin with "v". It reports whether the text is one.
func ParseSemanticVersion(text string) (SemanticVersion, bool) {
	if len(text) > maxVersion { // it appears in statuses
		return SemanticVersion{}, false
	}
	m := versionPattern.FindStringSubmatch(text)
	if m == nil {
		return SemanticVersion{}, false
	}
	v := SemanticVersion{Major: number(m[1]), Minor: number(m[2]), Patch: number(m[3])}
	if m[4] != "" {
		v.Pre = strings.Split(m[4], ".")
	}
	return v, true
}

// number returns a number of at most 18 digits, which a pattern has matched.
func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // cannot fail
	return n
}

// Compare returns -1, 0 or 1 by the precedence of versions.
func (v SemanticVersion) Compare(w SemanticVersion) int {
	if c := cmp.Or(cmp.Compare(v.Major, w.Major), cmp.Compare(v.Minor, w.Minor),
		cmp.Compare(v.Patch, w.Patch)); c != 0 {
		return c
	}
	if len(v.Pre) == 0 || len(w.Pre) == 0 { // a release is later than its pre-releases
		return cmp.Compare(len(w.Pre), len(v.Pre))
	}
	for i := range min(len(v.Pre), len(w.Pre)) {
		if c := comparePre(v.Pre[i], w.Pre[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(v.Pre), len(w.Pre))
}

// comparePre compares two identifiers of pre-releases. Numbers are lower than other identifiers.
func comparePre(a, b string) int {
	m, errA := strconv.ParseUint(a, 10, 64)
	n, errB := strconv.ParseUint(b, 10, 64)
	switch {
	case errA == nil && errB == nil:
		return cmp.Compare(m, n)
	case errA == nil:
		return -1
	case errB == nil:
		return 1
	}
	return cmp.Compare(a, b)
}

// Constraint is a condition on versions: alternatives of bounds that all hold.
type Constraint struct{ alternatives [][]bound }

// bound is a comparison with a version.
type bound struct {
	operator string // one of = != < <= > >=
	version  SemanticVersion
}

// Bounds of texts, in bytes.
const (
	maxConstraint = 256
	maxVersion    = 256
)

var termPattern = regexp.MustCompile(`^(\^|~|>=|<=|!=|=|>|<)?\s*v?(\d{1,9}|[xX*])(?:\.(\d{1,9}|[xX*]))?(?:\.(\d{1,9}|[xX*]))?(-[0-9A-Za-z.-]+)?$`)

// ParseConstraint parses a constraint such as "1.x", "^1.2", "~1.2.3" or ">=1.2.0 <2.0.0 || >=3.0.0". Pre-releases
// match only bounds of the same version that name a pre-release.
func ParseConstraint(text string) (Constraint, error) {
	if len(text) > maxConstraint {
		return Constraint{}, fmt.Errorf("the constraint has more than %d bytes", maxConstraint)
	}
	var c Constraint
	for part := range strings.SplitSeq(text, "||") {
		var all []bound
		for _, term := range splitTerms(part) {
			bounds, ok := parseTerm(term)
			if !ok {
				return Constraint{}, fmt.Errorf(
					"%q is not a constraint on versions, such as \"1.x\", \"^1.2\" or \">=1.2.0 <2.0.0\"", text)
			}
			all = append(all, bounds...)
		}
		if len(all) == 0 {
			return Constraint{}, fmt.Errorf("%q has an alternative without a version", text)
		}
		c.alternatives = append(c.alternatives, all)
	}
	return c, nil
}

// splitTerms splits at spaces and commas. An operator may be separated from its version.
func splitTerms(text string) (terms []string) {
	operator := ""
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		if strings.Trim(f, "^~<>=!") == "" {
			operator += f
			continue
		}
		terms = append(terms, operator+f)
		operator = ""
	}
	if operator != "" {
		terms = append(terms, operator)
	}
	return terms
}

// parseTerm returns the bounds of one term.
func parseTerm(term string) ([]bound, bool) {
	m := termPattern.FindStringSubmatch(term)
	if m == nil {
		return nil, false
	}
	given := 0 // numbers before the first wildcard
	var parts [3]uint64
	for i := range parts {
		text := m[i+2]
		if text == "" || strings.ContainsAny(text, "xX*") {
			break
		}
		parts[i] = number(text)
		given++
	}
	low := SemanticVersion{Major: parts[0], Minor: parts[1], Patch: parts[2]}
	if m[5] != "" {
		if given < 3 {
			return nil, false
		}
		low.Pre = strings.Split(m[5][1:], ".")
	}
	next := func(keep int) SemanticVersion { // the first version that differs in one of the first keep numbers
		switch keep {
		case 1:
			return SemanticVersion{Major: low.Major + 1}
		case 2:
			return SemanticVersion{Major: low.Major, Minor: low.Minor + 1}
		}
		return SemanticVersion{Major: low.Major, Minor: low.Minor, Patch: low.Patch + 1}
	}
	within := func(keep int) []bound { return []bound{{">=", low}, {"<", next(keep)}} }
	operator := m[1]
	if given == 0 { // any version
		return []bound{{">=", low}}, operator == "" || operator == "=" || operator == ">="
	}
	switch operator {
	case "^":
		keep := 1
		for keep < given && parts[keep-1] == 0 {
			keep++
		}
		return within(keep), true
	case "~":
		return within(min(given, 2)), true
	case "", "=":
		if given < 3 {
			return within(given), true
		}
		return []bound{{"=", low}}, true
	case ">":
		if given < 3 {
			return []bound{{">=", next(given)}}, true
		}
	case "<=":
		if given < 3 {
			return []bound{{"<", next(given)}}, true
		}
	case "!=":
		if given < 3 {
			return nil, false
		}
	}
	return []bound{{operator, low}}, true
}

// Matches reports whether a version satisfies the constraint.
func (c Constraint) Matches(v SemanticVersion) bool {
	for _, all := range c.alternatives {
		ok, named := true, len(v.Pre) == 0
		for _, b := range all {
			ok = ok && b.holds(v.Compare(b.version))
			named = named || len(b.version.Pre) > 0 && b.version.Major == v.Major && b.version.Minor == v.Minor &&
				b.version.Patch == v.Patch
		}
		if ok && named {
			return true
		}
	}
	return false
}

func (b bound) holds(order int) bool {
	switch b.operator {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	default:
		return order >= 0
	}
}

// Latest returns the tag with the highest version that satisfies the constraint. Of two tags of the same version, such
// as v1.0.0 and 1.0.0, it returns the first in the order of their texts. It reports whether there is any.
func (c Constraint) Latest(tags []string) (latest string, ok bool) {
	var highest SemanticVersion
	for _, tag := range tags {
		v, isVersion := ParseSemanticVersion(tag)
		if !isVersion || !c.Matches(v) {
			continue
		}
		if order := v.Compare(highest); !ok || order > 0 || order == 0 && tag < latest {
			latest, highest, ok = tag, v, true
		}
	}
	return latest, ok
}
