package authz

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// A rule grants every combination of its groups, resources, verbs and names. A short rule can stand for millions of
// grants, so the code does not list them. In each dimension, it treats the demanded values that the same held rules
// contain as one class. It then visits only combinations of classes. Their number depends on the rules that the user
// holds, not on the demanded ones.

// maxSteps and maxMissing limit a comparison.
const (
	maxSteps   = 1 << 18 // combinations of classes that are visited
	maxMissing = 50      // grants that a refusal lists
)

// errTooComplex is returned for rules that cannot be compared within maxSteps.
var errTooComplex = errors.New("the rules have too many combinations to be compared with the permissions of the " +
	"user; grant them in several roles, or with fewer resources and verbs in a rule")

// ruleSet is a set of held rules, by their index.
type ruleSet []uint64

func (b ruleSet) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b ruleSet) or(other ruleSet) {
	for i := range other {
		b[i] |= other[i]
	}
}

// intersect returns the rules that are in both sets, and whether there is one.
func (b ruleSet) intersect(other, into ruleSet) bool {
	found := uint64(0)
	for i := range b {
		into[i] = b[i] & other[i]
		found |= into[i]
	}
	return found != 0
}

// valueIndex finds the held rules that contain a value of one dimension.
type valueIndex struct {
	universal ruleSet // rules that contain all values
	byValue   map[string]ruleSet
}

// heldRules is the rules that a user has, prepared for comparisons.
type heldRules struct {
	words                          int
	groups, resources, verbs, name valueIndex
	subresources                   valueIndex // by what follows the slash of "*/scale"
	paths                          map[string]ruleSet
	prefixes                       []pathPrefix
	steps                          int // left of maxSteps
}

type pathPrefix struct {
	text string
	rule int
}

func newHeld(rules []rbacv1.PolicyRule) *heldRules {
	h := &heldRules{words: (len(rules) + 63) / 64, paths: map[string]ruleSet{}, steps: maxSteps}
	for _, v := range []*valueIndex{&h.groups, &h.resources, &h.verbs, &h.name, &h.subresources} {
		*v = valueIndex{universal: make(ruleSet, h.words), byValue: map[string]ruleSet{}}
	}
	for i, r := range rules {
		h.addValues(&h.groups, r.APIGroups, i)
		h.addValues(&h.verbs, r.Verbs, i)
		h.addValues(&h.resources, r.Resources, i)
		for _, resource := range r.Resources {
			if rest, ok := strings.CutPrefix(resource, "*/"); ok {
				h.bitsOf(h.subresources.byValue, rest).add(i)
			}
		}
		if len(r.ResourceNames) == 0 {
			h.name.universal.add(i)
		}
		for _, name := range r.ResourceNames {
			h.bitsOf(h.name.byValue, name).add(i)
		}
		for _, path := range r.NonResourceURLs {
			h.bitsOf(h.paths, path).add(i)
			if strings.HasSuffix(path, "*") {
				h.prefixes = append(h.prefixes, pathPrefix{strings.TrimRight(path, "*"), i})
			}
		}
	}
	return h
}

func (h *heldRules) bitsOf(of map[string]ruleSet, value string) ruleSet {
	if of[value] == nil {
		of[value] = make(ruleSet, h.words)
	}
	return of[value]
}

func (h *heldRules) addValues(v *valueIndex, list []string, rule int) {
	for _, value := range list {
		h.bitsOf(v.byValue, value).add(rule)
		if value == "*" {
			v.universal.add(rule)
		}
	}
}

// valueClass is the demanded values of one dimension that the same held rules contain.
type valueClass struct {
	rules ruleSet
	list  []string
}

// classes sorts a dimension's values into classes, in order of first appearance.
func (h *heldRules) classes(list []string, find func(value string, into ruleSet)) []valueClass {
	var out []valueClass
	at := map[string]int{}
	key, rules := make([]byte, 0, 8*h.words), make(ruleSet, h.words)
	seen := make(map[string]struct{}, len(list))
	for _, value := range list {
		if _, again := seen[value]; again {
			continue
		}
		seen[value] = struct{}{}
		clear(rules)
		find(value, rules)
		key = key[:0]
		for _, word := range rules {
			for shift := 0; shift < 64; shift += 8 {
				key = append(key, byte(word>>shift))
			}
		}
		i, ok := at[string(key)]
		if !ok {
			i = len(out)
			at[string(key)] = i
			out = append(out, valueClass{rules: append(ruleSet(nil), rules...)})
		}
		out[i].list = append(out[i].list, value)
	}
	return out
}

func (h *heldRules) find(v *valueIndex) func(string, ruleSet) {
	return func(value string, into ruleSet) {
		into.or(v.universal)
		into.or(v.byValue[value])
	}
}

func (h *heldRules) findResource(resource string, into ruleSet) {
	h.find(&h.resources)(resource, into)
	if _, subresource, ok := strings.Cut(resource, "/"); ok {
		into.or(h.subresources.byValue[subresource])
	}
}

func (h *heldRules) findPath(path string, into ruleSet) {
	into.or(h.paths[path])
	for _, p := range h.prefixes {
		if strings.HasPrefix(path, p.text) {
			into.add(p.rule)
		}
	}
}

// missing returns about maxMissing of the demanded grants that the held rules do not contain, or none if they contain
// all. Each grant has one group and resource, or one path.
func (h *heldRules) missing(demanded []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
	var out []rbacv1.PolicyRule
	for i := range demanded {
		r := &demanded[i]
		for _, dimensions := range [][][]valueClass{h.resourceRule(r), h.pathRule(r)} {
			w := newGrantWalk(h, dimensions, r.Verbs)
			if err := w.visit(0, w.allRules); err != nil {
				return nil, err
			}
			for _, box := range w.uncovered {
				if out = box.appendRules(out); len(out) >= maxMissing {
					return out, nil
				}
			}
		}
	}
	return out, nil
}

// resourceRule returns a rule's dimensions: groups, resources, names, verbs.
func (h *heldRules) resourceRule(r *rbacv1.PolicyRule) [][]valueClass {
	// without names, only rules without names contain it
	names := []valueClass{{rules: h.name.universal, list: []string{""}}}
	if len(r.ResourceNames) > 0 {
		names = h.classes(r.ResourceNames, h.find(&h.name))
	}
	return [][]valueClass{
		h.classes(r.APIGroups, h.find(&h.groups)),
		h.classes(r.Resources, h.findResource),
		names,
		h.classes(r.Verbs, h.find(&h.verbs)),
	}
}

// pathRule returns the dimensions of a rule's paths: paths, verbs.
func (h *heldRules) pathRule(r *rbacv1.PolicyRule) [][]valueClass {
	if len(r.NonResourceURLs) == 0 {
		return nil
	}
	paths := h.classes(r.NonResourceURLs, h.findPath)
	for i := range paths {
		paths[i].rules.intersect(h.name.universal, paths[i].rules)
	}
	return [][]valueClass{paths, h.classes(r.Verbs, h.find(&h.verbs))}
}

// grantWalk visits the combinations of one rule's classes.
type grantWalk struct {
	held                *heldRules
	dimensions          [][]valueClass // verbs are last
	verbs               map[string]int
	combination         [][]string // values of the combination that is being visited
	allRules, restRules ruleSet
	commonByDepth       []ruleSet // by depth
	uncovered           []product
}

func newGrantWalk(h *heldRules, dimensions [][]valueClass, verbs []string) *grantWalk {
	w := &grantWalk{held: h, dimensions: dimensions, verbs: map[string]int{},
		combination: make([][]string, len(dimensions)),
		allRules:    make(ruleSet, h.words), restRules: make(ruleSet, h.words),
		commonByDepth: make([]ruleSet, len(dimensions))}
	for i := range w.allRules {
		w.allRules[i] = ^uint64(0)
	}
	for i := range w.commonByDepth {
		w.commonByDepth[i] = make(ruleSet, h.words)
	}
	for i, verb := range verbs {
		w.verbs[verb] = i
	}
	return w
}

// visit goes through the classes of one dimension. In rules are the held rules that contain the combination so far.
func (w *grantWalk) visit(depth int, rules ruleSet) error {
	if depth == len(w.dimensions) {
		return nil
	}
	last, both := depth == len(w.dimensions)-1, w.commonByDepth[depth]
	var uncovered []string
	for _, c := range w.dimensions[depth] {
		if w.held.steps--; w.held.steps < 0 {
			return errTooComplex
		}
		if len(w.uncovered) >= maxMissing {
			return nil
		}
		covered := c.rules.intersect(rules, both)
		if last {
			if !covered {
				uncovered = append(uncovered, c.list...)
			}
			continue
		}
		w.combination[depth] = c.list
		if !covered {
			w.add(depth)
		} else if !w.isRestCovered(depth+1, both) {
			if err := w.visit(depth+1, both); err != nil {
				return err
			}
		}
	}
	if len(uncovered) > 0 {
		w.combination[depth] = uncovered
		w.add(depth)
	}
	return nil
}

// isRestCovered reports whether one of the rules contains all values of the dimensions from depth on.
func (w *grantWalk) isRestCovered(depth int, rules ruleSet) bool {
	copy(w.restRules, rules)
	for _, classes := range w.dimensions[depth:] {
		for _, c := range classes {
			w.held.steps--
			if !c.rules.intersect(w.restRules, w.restRules) {
				return false
			}
		}
	}
	return true
}

// add records the combination up to depth, with all values of the dimensions after it, as uncovered. A product with an
// empty dimension grants nothing.
func (w *grantWalk) add(depth int) {
	var b product
	for i, classes := range w.dimensions {
		list := w.combination[i]
		if i > depth {
			list = nil
			for _, c := range classes {
				list = append(list, c.list...)
			}
		}
		if len(list) == 0 {
			return
		}
		b = append(b, list)
	}
	verbs := slices.Clone(b[len(b)-1])
	slices.SortFunc(verbs, func(a, b string) int { return cmp.Compare(w.verbs[a], w.verbs[b]) })
	b[len(b)-1] = verbs
	w.uncovered = append(w.uncovered, b)
}

// product is a product of values that no held rule contains: groups, resources, names and verbs, or paths and verbs.
type product [][]string

// appendRules appends the box's grants to out, until there are maxMissing.
func (b product) appendRules(out []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	verbs := b[len(b)-1]
	if len(b) == 2 {
		for _, path := range b[0] {
			if len(out) >= maxMissing {
				break
			}
			out = append(out, rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: verbs})
		}
		return out
	}
	for _, group := range b[0] {
		for _, resource := range b[1] {
			for _, name := range b[2] {
				if len(out) >= maxMissing {
					return out
				}
				r := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
				if name != "" {
					r.ResourceNames = []string{name}
				}
				out = append(out, r)
			}
		}
	}
	return out
}
