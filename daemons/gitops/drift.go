package gitops

import (
	"fmt"
	"slices"
	"strings"

	"clusterctl/daemons/config/gitsource"
)

// driftPolicies are the policies of objects.
var driftPolicies = []string{gitsource.DriftRevert, gitsource.DriftReport, gitsource.DriftIgnore}

// applied returns a function that reports whether a source has applied an object before, in whatever version.
func applied(s *Source) func(ObjectID) bool {
	in := make(map[identity]bool, len(s.Status.Inventory))
	for _, text := range s.Status.Inventory {
		if id, err := ParseID(text); err == nil {
			in[id.identity()] = true
		}
	}
	return func(id ObjectID) bool { return in[id.identity()] }
}

// driftPolicy returns the policy of an object: that of its annotation, or else that of the source.
func driftPolicy(s *Source, o Object) (string, error) {
	own, ok := o.GetAnnotations()[gitsource.DriftAnnotation]
	if !ok {
		return s.Spec.DriftPolicy(), nil
	}
	if !slices.Contains(driftPolicies, own) {
		return "", fmt.Errorf("%s: annotation %s: %q is not one of %q", o.position(), gitsource.DriftAnnotation, own,
			driftPolicies)
	}
	return own, nil
}

// split divides the objects of a stage into those to apply and those to compare only. exists reports whether an object
// exists. declared means that the rendered objects differ from those that were applied last, so that a difference is
// not drift.
func split(s *Source, objects []Object, declared bool, exists func(ObjectID) bool) (apply, compare []Object) {
	for _, o := range objects {
		policy, err := driftPolicy(s, o) // errors were reported when the objects were checked
		switch {
		case err != nil || policy == gitsource.DriftRevert:
			apply = append(apply, o)
		case policy == gitsource.DriftIgnore && !exists(o.ID()):
			apply = append(apply, o)
		case policy == gitsource.DriftIgnore:
		case declared:
			apply = append(apply, o)
		default:
			compare = append(compare, o)
		}
	}
	return apply, compare
}

// rendersSecrets reports whether the objects of a source may contain values of Secrets: of encrypted files, or those
// that a chart reads.
func rendersSecrets(s *Source) bool {
	return s.Spec.Decryption != nil || s.Spec.Helm != nil && slices.ContainsFunc(s.Spec.Helm.ValuesFrom,
		func(v gitsource.ValuesFrom) bool { return v.Kind == "Secret" })
}

// visibleDiff returns the lines of a difference. Of a source that renders values of Secrets only the paths of the
// fields are shown, since any object may contain such a value, or one that it had earlier.
func visibleDiff(s *Source, lines []string) []string {
	if !rendersSecrets(s) {
		return lines
	}
	paths := make([]string, len(lines))
	for i, line := range lines {
		path, _, _ := strings.Cut(line, ": ")
		paths[i] = path + ": (hidden)"
	}
	return paths
}

// describeDrift returns the entry of a drifted object in a status.
func describeDrift(s *Source, o Object, r Result) string {
	text := o.ID().String()
	r.Diff = visibleDiff(s, r.Diff)
	switch {
	case r.Action == ActionCreate:
		return text + ": it does not exist"
	case len(r.Diff) == 0:
		return text
	case len(r.Diff) == 1:
		return text + ": " + r.Diff[0]
	}
	return fmt.Sprintf("%s: %s, and %d more fields", text, r.Diff[0], len(r.Diff)-1)
}
