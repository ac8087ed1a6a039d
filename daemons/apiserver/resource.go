package apiserver

import (
	"slices"
)

// serveResource answers what is asked of a resource that is served.
func (s *Server) serveResource(q *request) error {
	if q.served.Namespaced && q.Namespace == "" && q.Verb != "list" && q.Verb != "watch" {
		// Over all namespaces there is only reading: upstream has no such paths.
		if q.Name != "" {
			return pageNotFound()
		}
		return methodNotAllowed(q)
	}
	if !q.served.Namespaced && q.Namespace != "" && q.served.Resource != "namespaces" {
		return pageNotFound()
	}
	if !q.served.Namespaced {
		q.Namespace = "" // the path of a namespace itself carries its name twice over
	}
	if text := q.served.Deprecated; text != "" {
		q.warn(text)
	}
	if q.Subresource != "" {
		return s.serveSubresource(q)
	}
	if q.served.Virtual {
		switch {
		case q.served.Verbs != nil && !slices.Contains(q.served.Verbs, q.Verb):
			return methodNotAllowed(q)
		case q.served.Resource == "componentstatuses":
			return s.components(q)
		}
		return s.review(q)
	}
	if q.served.Verbs != nil && !slices.Contains(q.served.Verbs, q.Verb) {
		return methodNotAllowed(q)
	}
	if q.Name == "" && (q.Verb == "update" || q.Verb == "patch") {
		return methodNotAllowed(q)
	}
	if q.Verb == "create" && q.served.Untyped != nil && q.served.Untyped.Family.Closed.Load() {
		return closed(q)
	}
	switch q.Verb {
	case "get":
		return s.get(q)
	case "list":
		return s.list(q)
	case "watch":
		return s.watch(q)
	case "create":
		return s.create(q)
	case "update":
		return s.update(q)
	case "patch":
		return s.patch(q)
	case "delete":
		return s.delete(q)
	case "deletecollection":
		return s.deleteCollection(q)
	}
	return methodNotAllowed(q)
}
