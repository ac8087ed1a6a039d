package apiserver

// serveResource answers a request for a served resource.
func (s *Server) serveResource(q *request) error {
	if err := q.checkRoute(); err != nil {
		return err
	}
	if !q.served.Namespaced {
		q.Namespace = "" // in the path of a namespace itself, its name is also the namespace
	}
	if text := q.served.Deprecated; text != "" {
		q.warn(text)
		s.metrics.recordDeprecated(q)
	}
	if q.Subresource != "" {
		return s.serveSubresource(q)
	}
	if q.served.Virtual {
		if q.served.Resource == "componentstatuses" {
			return s.serveComponentStatuses(q)
		}
		return s.serveReview(q)
	}
	if q.Verb == "create" && q.served.Untyped != nil && q.served.Untyped.Family.IsClosed.Load() {
		return terminatingError(q)
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
