package gitops

import (
	"fmt"
	"slices"
	"strings"

	"clusterctl/daemons/config/gitsource"
)

// Ref is a reference of a repository.
type Ref struct {
	Name string // full name, such as refs/heads/main
	Hash string // commit ID; for an annotated tag, that of the commit
	Tag  string // ID of the annotated tag; empty for other references
}

// Selected is a selected commit.
type Selected struct {
	Ref   string // full name of the reference to fetch; empty means that only the commit is known
	Hash  string
	Tag   string // ID of the annotated tag, if Ref is one
	Label string // short name for people
}

// Revision returns the text that identifies the commit in a status.
func (s Selected) Revision() string { return s.Label + "@sha1:" + s.Hash }

// SelectRevision returns the commit that a spec selects among the references of a repository. head is the full name of
// the server's default branch, or empty.
func SelectRevision(spec *gitsource.Spec, refs []Ref, head string) (Selected, error) {
	find := func(name string) (Selected, bool) {
		i := slices.IndexFunc(refs, func(r Ref) bool { return r.Name == name })
		if i < 0 {
			return Selected{}, false
		}
		label := strings.TrimPrefix(strings.TrimPrefix(name, "refs/heads/"), "refs/tags/")
		return Selected{Ref: name, Hash: refs[i].Hash, Tag: refs[i].Tag, Label: label}, true
	}
	switch {
	case spec.Commit != "":
		s := Selected{Hash: spec.Commit, Label: "commit"}
		for _, r := range refs { // a server gives out the commit of a reference in any case
			if r.Hash == spec.Commit {
				s.Ref = r.Name
				break
			}
		}
		return s, nil
	case spec.Tag != "":
		if s, ok := find("refs/tags/" + spec.Tag); ok {
			return s, nil
		}
		return Selected{}, fmt.Errorf("the repository has no tag %q", spec.Tag)
	case spec.Branch != "":
		if s, ok := find("refs/heads/" + spec.Branch); ok {
			return s, nil
		}
		return Selected{}, fmt.Errorf("the repository has no branch %q", spec.Branch)
	case spec.Semver != "":
		constraint, err := gitsource.ParseConstraint(spec.Semver)
		if err != nil {
			return Selected{}, err
		}
		var tags []string
		for _, r := range refs {
			if tag, ok := strings.CutPrefix(r.Name, "refs/tags/"); ok {
				tags = append(tags, tag)
			}
		}
		latest, ok := constraint.Latest(tags)
		if !ok {
			return Selected{}, fmt.Errorf("none of the repository's %d tags is a version that satisfies %q", len(tags),
				spec.Semver)
		}
		s, _ := find("refs/tags/" + latest)
		return s, nil
	}
	if s, ok := find(head); ok && head != "" {
		return s, nil
	}
	return Selected{}, fmt.Errorf("the repository has no default branch; set spec.branch")
}
