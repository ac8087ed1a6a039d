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
var errTooComplex = errors.New(
	"the rules have too many combinations to be compared with the permissions of the user; " +
		"grant them in several roles, or with fewer resources and verbs in a rule",
)

// bits is a set of held rules, by their index.
type bits []uint64

func (b bits) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b bits) or(other bits) {
	for i := range other {
		b[i] |= other[i]
	}
}

// common returns the rules that are in both sets, and whether there is one.
func (b bits) common(other, into bits) bool {
	found := uint64(0)
	for i := range b {
		into[i] = b[i] & other[i]
		found |= into[i]
	}
	return found != 0
}

// values finds the held rules that contain a value of one dimension.
type values struct {
	every bits // rules that contain all values
	of    map[string]bits
}

// held is the rules that a user has, prepared for comparisons.
type held struct {
	words                          int
	groups, resources, verbs, name values
	subresources                   values // by what follows the slash of "*/scale"
	paths                          map[string]bits
	prefixes                       []pathPrefix
	steps                          int // left of maxSteps
}

type pathPrefix struct {
	text string
	rule int
}

func newHeld(rules []rbacv1.PolicyRule) *held {
	h := &held{words: (len(rules) + 63) / 64, paths: map[string]bits{}, steps: maxSteps}
	for _, v := range []*values{&h.groups, &h.resources, &h.verbs, &h.name, &h.subresources} {
		*v = values{every: make(bits, h.words), of: map[string]bits{}}
	}
	for i, r := range rules {
		h.put(&h.groups, r.APIGroups, i)
		h.put(&h.verbs, r.Verbs, i)
		h.put(&h.resources, r.Resources, i)
		for _, resource := range r.Resources {
			if rest, ok := strings.CutPrefix(resource, "*/"); ok {
				h.set(h.subresources.of, rest).add(i)
			}
		}
		if len(r.ResourceNames) == 0 {
			h.name.every.add(i)
		}
		for _, name := range r.ResourceNames {
			h.set(h.name.of, name).add(i)
		}
		for _, path := range r.NonResourceURLs {
			h.set(h.paths, path).add(i)
			if strings.HasSuffix(path, "*") {
				h.prefixes = append(h.prefixes, pathPrefix{strings.TrimRight(path, "*"), i})
			}
		}
	}
	return h
}

func (h *held) set(of map[string]bits, value string) bits {
	if of[value] == nil {
		of[value] = make(bits, h.words)
	}
	return of[value]
}

func (h *held) put(v *values, list []string, rule int) {
	for _, value := range list {
		h.set(v.of, value).add(rule)
		if value == "*" {
			v.every.add(rule)
		}
	}
}

// class is the demanded values of one dimension that the same held rules contain.
type class struct {
	rules bits
	list  []string
}

// classes sorts a dimension's values into classes, in order of first appearance.
func (h *held) classes(list []string, find func(value string, into bits)) []class {
	var out []class
	at := map[string]int{}
	key, rules := make([]byte, 0, 8*h.words), make(bits, h.words)
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
			out = append(out, class{rules: append(bits(nil), rules...)})
		}
		out[i].list = append(out[i].list, value)
	}
	return out
}

func (h *held) find(v *values) func(string, bits) {
	return func(value string, into bits) {
		into.or(v.every)
		into.or(v.of[value])
	}
}

func (h *held) findResource(resource string, into bits) {
	h.find(&h.resources)(resource, into)
	if _, subresource, ok := strings.Cut(resource, "/"); ok {
		into.or(h.subresources.of[subresource])
	}
}

func (h *held) findPath(path string, into bits) {
	into.or(h.paths[path])
	for _, p := range h.prefixes {
		if strings.HasPrefix(path, p.text) {
			into.add(p.rule)
		}
	}
}

// missing returns about maxMissing of the demanded grants that the held rules do not contain, or none if they contain
// all. Each grant has one group and resource, or one path.
func (h *held) missing(demanded []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
	var out []rbacv1.PolicyRule
	for i := range demanded {
		r := &demanded[i]
		for _, dimensions := range [][][]class{h.resourceRule(r), h.pathRule(r)} {
			w := newWalk(h, dimensions, r.Verbs)
			if err := w.visit(0, w.all); err != nil {
				return nil, err
			}
			for _, box := range w.uncovered {
				if out = box.list(out); len(out) >= maxMissing {
					return out, nil
				}
			}
		}
	}
	return out, nil
}

// resourceRule returns a rule's dimensions: groups, resources, names, verbs.
func (h *held) resourceRule(r *rbacv1.PolicyRule) [][]class {
	names := []class{{rules: h.name.every, list: []string{""}}} // without names, only rules without names contain it
	if len(r.ResourceNames) > 0 {
		names = h.classes(r.ResourceNames, h.find(&h.name))
	}
	return [][]class{
		h.classes(r.APIGroups, h.find(&h.groups)),
		h.classes(r.Resources, h.findResource),
		names,
		h.classes(r.Verbs, h.find(&h.verbs)),
	}
}

// pathRule returns the dimensions of a rule's paths: paths, verbs.
func (h *held) pathRule(r *rbacv1.PolicyRule) [][]class {
	if len(r.NonResourceURLs) == 0 {
		return nil
	}
	paths := h.classes(r.NonResourceURLs, h.findPath)
	for i := range paths {
		paths[i].rules.common(h.name.every, paths[i].rules)
	}
	return [][]class{paths, h.classes(r.Verbs, h.find(&h.verbs))}
}

// walk visits the combinations of one rule's classes.
type walk struct {
	held       *held
	dimensions [][]class // verbs are last
	verbs      map[string]int
	at         [][]string // values of the combination that is being visited
	all, rest  bits
	both       []bits // by depth
	uncovered  []box
}

func newWalk(h *held, dimensions [][]class, verbs []string) *walk {
	w := &walk{held: h, dimensions: dimensions, verbs: map[string]int{}, at: make([][]string, len(dimensions)),
		all: make(bits, h.words), rest: make(bits, h.words), both: make([]bits, len(dimensions))}
	for i := range w.all {
		w.all[i] = ^uint64(0)
	}
	for i := range w.both {
		w.both[i] = make(bits, h.words)
	}
	for i, verb := range verbs {
		w.verbs[verb] = i
	}
	return w
}

// visit goes through the classes of one dimension. In rules are the held rules that contain the combination so far.
func (w *walk) visit(depth int, rules bits) error {
	if depth == len(w.dimensions) {
		return nil
	}
	last, both := depth == len(w.dimensions)-1, w.both[depth]
	var uncovered []string
	for _, c := range w.dimensions[depth] {
		if w.held.steps--; w.held.steps < 0 {
			return errTooComplex
		}
		if len(w.uncovered) >= maxMissing {
			return nil
		}
		covered := c.rules.common(rules, both)
		if last {
			if !covered {
				uncovered = append(uncovered, c.list...)
			}
			continue
		}
		w.at[depth] = c.list
		if !covered {
			w.add(depth)
		} else if !w.restCovered(depth+1, both) {
			if err := w.visit(depth+1, both); err != nil {
				return err
			}
		}
	}
	if len(uncovered) > 0 {
		w.at[depth] = uncovered
		w.add(depth)
	}
	return nil
}

// restCovered reports whether one of the rules contains all values of the dimensions from depth on.
func (w *walk) restCovered(depth int, rules bits) bool {
	copy(w.rest, rules)
	for _, classes := range w.dimensions[depth:] {
		for _, c := range classes {
			w.held.steps--
			if !c.rules.common(w.rest, w.rest) {
				return false
			}
		}
	}
	return true
}

// add records the combination up to depth, with all values of the dimensions after it, as uncovered. A product with an
// empty dimension grants nothing.
func (w *walk) add(depth int) {
	var b box
	for i, classes := range w.dimensions {
		list := w.at[i]
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

// box is a product of values that no held rule contains: groups, resources, names and verbs, or paths and verbs.
type box [][]string

// list appends the box's grants to out, until there are maxMissing.
func (b box) list(out []rbacv1.PolicyRule) []rbacv1.PolicyRule {
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
