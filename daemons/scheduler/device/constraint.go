package device

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// constraint is a constraint on several devices of a claim.
type constraint struct {
	requests  []string // empty means all requests
	attribute resourcev1.FullyQualifiedName
	distinct  bool
}

// covers reports whether the constraint covers a request. A subrequest is covered by its own name or by that of its
// request.
func (c *constraint) covers(request string) bool {
	parent, _, _ := strings.Cut(request, "/")
	return len(c.requests) == 0 || slices.Contains(c.requests, request) || slices.Contains(c.requests, parent)
}

// permits reports whether a device may be combined with those that were picked. A device without the attribute may not.
func (c *constraint) permits(request string, e *entry, picked []pick) bool {
	if !c.covers(request) {
		return true
	}
	mine, ok := attribute(e, c.attribute)
	if !ok {
		return false
	}
	for i := range picked {
		if !c.covers(picked[i].option.name) {
			continue
		}
		theirs, _ := attribute(picked[i].entry, c.attribute)
		if (mine == theirs) == c.distinct {
			return false
		}
		if !c.distinct {
			return true // all picked devices have the same value
		}
	}
	return true
}

// value is a comparable attribute of one of four types.
type value struct {
	kind rune
	n    int64
	text string
}

// attribute returns an attribute of a device. A name without a domain belongs to the driver's domain.
func attribute(e *entry, name resourcev1.FullyQualifiedName) (value, bool) {
	a, ok := e.Attributes[resourcev1.QualifiedName(name)]
	if !ok {
		domain, id, _ := strings.Cut(string(name), "/")
		if domain != e.Driver {
			return value{}, false
		}
		if a, ok = e.Attributes[resourcev1.QualifiedName(id)]; !ok {
			return value{}, false
		}
	}
	switch {
	case a.IntValue != nil:
		return value{kind: 'i', n: *a.IntValue}, true
	case a.BoolValue != nil && *a.BoolValue:
		return value{kind: 'b', n: 1}, true
	case a.BoolValue != nil:
		return value{kind: 'b'}, true
	case a.StringValue != nil:
		return value{kind: 's', text: *a.StringValue}, true
	case a.VersionValue != nil:
		return value{kind: 'v', text: *a.VersionValue}, true
	}
	return value{}, false
}
