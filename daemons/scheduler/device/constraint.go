package device

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
)

// constraint is one demand on devices together.
type constraint struct {
	requests  []string // all when empty
	attribute resourcev1.FullyQualifiedName
	distinct  bool
}

// concerns reports whether a request's devices count; a subrequest goes by its own name and by that of its request.
func (c *constraint) concerns(request string) bool {
	parent, _, _ := strings.Cut(request, "/")
	return len(c.requests) == 0 || slices.Contains(c.requests, request) || slices.Contains(c.requests, parent)
}

// admits reports whether a device may join those that were picked. One without the attribute may not.
func (c *constraint) admits(request string, e *entry, picked []pick) bool {
	if !c.concerns(request) {
		return true
	}
	mine, ok := attribute(e, c.attribute)
	if !ok {
		return false
	}
	for i := range picked {
		if !c.concerns(picked[i].option.name) {
			continue
		}
		theirs, _ := attribute(picked[i].entry, c.attribute)
		if (mine == theirs) == c.distinct {
			return false
		}
		if !c.distinct {
			return true // all that were picked are alike
		}
	}
	return true
}

// value is an attribute of one of four types, comparable.
type value struct {
	kind rune
	n    int64
	text string
}

// attribute looks an attribute up. What a driver calls by a bare name is in its own domain.
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
