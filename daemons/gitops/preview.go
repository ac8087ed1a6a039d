package gitops

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"clusterctl/daemons/config/gitsource"
)

// Change is what a reconciliation would do to one object.
type Change struct {
	Object string   `json:"object"` // as in an inventory
	Action string   `json:"action"` // create, change, recreate, delete, keep or refused
	File   string   `json:"file,omitempty"`
	Reason string   `json:"reason,omitempty"` // why an object is kept or refused
	Diff   []string `json:"diff,omitempty"`
}

// Preview is what a reconciliation would do.
type Preview struct {
	Source   string   `json:"source"`
	Revision string   `json:"revision"`
	Objects  int      `json:"objects"`
	Changes  []Change `json:"changes"`
}

// Preview fetches and renders a source and compares the objects with the cluster. It changes nothing. revision, if not
// empty, replaces what the source selects. all are all sources of the cluster.
func (c *Controller) Preview(ctx context.Context, s *Source, revision string, all []*Source) (*Preview, error) {
	var l *loaded
	var objects []Object
	var err error
	for _, selected := range selections(s, revision) {
		if problems := selected.Spec.Problems(); len(problems) > 0 {
			err = problems[0]
			continue
		}
		var f *failure
		if l, objects, f = c.load(ctx, selected); f == nil {
			err = nil
			break
		}
		if err = f; f.reason != reasonFetch {
			break // the revision exists
		}
	}
	if err != nil {
		return nil, err
	}
	snapshot, a := l.snapshot, l.applier
	redact := snapshot.Redact
	if redact == nil {
		redact = func(text string) string { return text }
	}
	previous, err := parseInventory(s.Status.Inventory)
	if err != nil {
		return nil, err
	}
	p := &Preview{Source: s.owner(), Revision: snapshot.Revision, Objects: len(objects), Changes: []Change{}}
	if len(objects) == 0 && len(previous) > 0 && !s.Spec.AllowEmpty {
		return nil, fmt.Errorf("no objects are rendered, and %d were applied before; the controller deletes nothing",
			len(previous))
	}
	own := applied(s)
	for i, o := range objects {
		objects[i].Adopt = o.Adopt || own(o.ID())
	}
	results, err := a.Compare(ctx, objects)
	if err != nil {
		return nil, fmt.Errorf("compare the objects: %s", redact(err.Error()))
	}
	for i, r := range results {
		o := objects[i]
		change := Change{Object: o.ID().String(), Action: string(r.Action), File: o.File, Diff: visibleDiff(s, r.Diff)}
		policy, err := driftPolicy(s, o)
		if err != nil {
			return nil, err
		}
		owner := checkOwner(s, o, r.Live, func() []*Source { return all })
		switch {
		case owner != nil:
			change.Action, change.Reason, change.Diff = "refused", owner.Error(), nil
		case r.Err != nil && recreates(s, o, r.Err):
			change.Action, change.Reason = "recreate", "an immutable field has changed"
		case r.Err != nil:
			change.Action, change.Reason, change.Diff = "refused", redact(r.Err.Error()), nil
		case r.Action == ActionNone:
			continue
		case r.Action == ActionChange && policy == gitsource.DriftIgnore:
			change.Action, change.Reason = "keep", "its drift policy is ignore"
		case s.Status.AppliedRevision == snapshot.Revision && s.Status.AppliedSpec == specDigest(&s.Spec) &&
			policy == gitsource.DriftReport:
			change.Action, change.Reason = "keep", "it has drifted, and drift is only reported"
		}
		p.Changes = append(p.Changes, change)
	}
	previewPrune(ctx, s, a, p, previous.without(idsOf(objects)), all)
	return p, nil
}

// commitPattern matches the ID of a commit.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// selections returns copies of a source that select a revision, in the order in which they are tried. A text may be the
// name of a branch and of a tag.
func selections(s *Source, revision string) (list []*Source) {
	if revision == "" {
		return []*Source{s}
	}
	add := func(set func(spec *gitsource.Spec)) {
		one := *s
		one.Spec.Branch, one.Spec.Tag, one.Spec.Semver, one.Spec.Commit, one.Spec.Digest = "", "", "", "", ""
		set(&one.Spec)
		list = append(list, &one)
	}
	switch {
	case s.Spec.IsHelmRepository():
		add(func(spec *gitsource.Spec) {
			helm := *spec.Helm
			helm.Version = revision
			spec.Helm = &helm
		})
	case s.Spec.IsOCI() && strings.HasPrefix(revision, "sha256:"):
		add(func(spec *gitsource.Spec) { spec.Digest = revision })
	case s.Spec.IsOCI():
		add(func(spec *gitsource.Spec) { spec.Tag = revision })
	case commitPattern.MatchString(revision):
		add(func(spec *gitsource.Spec) { spec.Commit = revision })
	default:
		add(func(spec *gitsource.Spec) { spec.Tag = revision })
		add(func(spec *gitsource.Spec) { spec.Branch = revision })
	}
	return list
}

// previewPrune adds the objects that are no longer rendered.
func previewPrune(ctx context.Context, s *Source, a Applier, p *Preview, obsolete inventory, all []*Source) {
	for _, id := range deletionOrder(obsolete) {
		lives, err := a.Find(ctx, []ObjectID{id})
		if err != nil {
			p.Changes = append(p.Changes, Change{Object: id.String(), Action: "keep", Reason: err.Error()})
			continue
		}
		d := decidePrune(s, p.Revision, id, lives[0], all)
		change := Change{Object: id.String(), Action: "delete"}
		if d.action != pruneDelete {
			change.Action, change.Reason = "keep", d.reason
		}
		if lives[0] != nil {
			p.Changes = append(p.Changes, change)
		}
	}
}
