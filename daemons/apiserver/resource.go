package apiserver

import (
	"clusterctl/daemons/apiserver/read"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/stream"
	"clusterctl/daemons/apiserver/write"
)

// resourceHandlers answers requests for served resources.
type resourceHandlers struct {
	reads      *read.Reads
	writes     *write.Writes
	streams    *stream.Streams
	components componentStatuses
	metrics    *serverMetrics
}

// serve answers a request.
func (s *resourceHandlers) serve(q *request.Request) error {
	if err := q.CheckRoute(); err != nil {
		return err
	}
	if !q.Served.Namespaced && q.Namespace != "" {
		q = q.WithObject("", q.Name) // in the path of a namespace itself, its name is also the namespace
	}
	if text := q.Served.Deprecated; text != "" {
		q.Answer.Warn(text)
		s.metrics.recordDeprecated(q)
	}
	if q.Subresource != "" {
		return s.serveSubresource(q)
	}
	if q.Served.Virtual {
		if q.Served.Resource == "componentstatuses" {
			return s.components.serve(q)
		}
		return s.writes.Review(q)
	}
	if q.Verb == "create" && q.Served.Untyped != nil && q.Served.Untyped.Family.IsClosed.Load() {
		return write.TerminatingError(q)
	}
	switch q.Verb {
	case "get":
		return s.reads.Get(q)
	case "list":
		return s.reads.List(q)
	case "watch":
		return s.reads.Watch(q)
	case "create":
		return s.writes.Create(q)
	case "update":
		return s.writes.Update(q)
	case "patch":
		return s.writes.Patch(q)
	case "delete":
		return s.writes.Delete(q)
	case "deletecollection":
		return s.writes.DeleteCollection(q)
	}
	return request.MethodNotAllowed(q)
}
