package apiserver

import (
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// maxListBytes is how much memory, in bytes, all list responses in progress may use together.
const maxListBytes = 512 << 20

// newFlow returns the flow controller that shares the server's capacity among requests. It is nil if cfg disables
// priority and fairness.
func newFlow(cfg config.APIServer, s *Server, env run.Env) (*flow.Controller, error) {
	if !cfg.EnablePriorityAndFairness {
		return nil, nil
	}
	return flow.New(flow.Config{
		Objects: s.Objects(), Seats: max(1, cfg.MaxRequestsInflight+cfg.MaxMutatingRequestsInflight),
		Bytes: maxListBytes,
		Wait:  max(s.options.RequestTimeout/4, time.Second), Env: env,
	})
}

// flowObjects returns the flow schemas and priority levels that every cluster has.
func flowObjects(cfg config.APIServer) (list []runtime.Object) {
	if !cfg.EnablePriorityAndFairness {
		return nil
	}
	for _, l := range append(bootstrap.MandatoryPriorityLevelConfigurations[:2:2],
		bootstrap.SuggestedPriorityLevelConfigurations...) {
		list = append(list, l)
	}
	for _, s := range append(bootstrap.MandatoryFlowSchemas[:2:2], bootstrap.SuggestedFlowSchemas...) {
		list = append(list, s)
	}
	return list
}

// acquireSeats is the stage in which a request waits for its seats. Streams do not wait. A watch holds its seats until
// it has sent its initial events.
func (s *Server) acquireSeats(q *request) error {
	if s.options.Flow == nil {
		return s.limitInFlight(q)
	}
	if q.isLongRunning() && q.Verb != "watch" {
		return nil
	}
	schema := s.options.Flow.Classify(&q.user, &q.Request)
	schema.SetHeaders(q.w.Header())
	began := time.Now()
	ticket, exempt := schema.ExemptTicket()
	if !exempt {
		var err error
		if ticket, err = s.options.Flow.Enter(q.http.Context(), schema, &q.user, &q.Request,
			q.estimateWork()); err != nil {
			q.seatWait = time.Since(began)
			return tooManyRequests(q)
		}
	}
	q.w.(*responseRecorder).ticket, q.schema, q.seatsGrantedAt = ticket, schema, time.Now()
	q.seatWait = q.seatsGrantedAt.Sub(began)
	ticket.Begin(q.seatWait)
	return nil
}

// tooManyRequests asks a client to retry later. Like upstream it answers in plain text instead of a Status, so that
// encoding uses no capacity.
func tooManyRequests(q *request) error {
	q.w.Header().Set("Retry-After", "1")
	http.Error(q.w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	return errAnswered
}

// limitInFlight limits the number of concurrent requests when priority and fairness are disabled. Watches and streams
// do not count, and health checks are always answered.
func (s *Server) limitInFlight(q *request) error {
	if q.isLongRunning() || isHealthPath(q.Path) || s.tryEnterInFlight(q) {
		return nil
	}
	return tooManyRequests(q)
}

// tryEnterInFlight counts a request, if the limit is not reached. It reports whether it did.
func (s *Server) tryEnterInFlight(q *request) bool {
	select {
	case s.inFlight <- struct{}{}:
		q.w.(*responseRecorder).onRelease = func() { <-s.inFlight }
		return true
	default:
		return false
	}
}

// bytesPerSeat is the size of a list, in bytes, that each seat covers. maxSeats is the most seats that a list takes.
const (
	bytesPerSeat = 1 << 20
	maxSeats     = 10
)

// estimateWork estimates the cost of a request: one seat, or for a list as many as its size needs.
func (q *request) estimateWork() flow.Work {
	one := flow.Work{Seats: 1}
	if q.cache == nil || q.Name != "" {
		return one
	}
	switch q.Verb {
	case "list":
	case "watch":
		if version := q.query.Get("resourceVersion"); version != "" && version != "0" &&
			q.query.Get("sendInitialEvents") == "" {
			return one
		}
	default:
		return one
	}
	count, average := q.cache.Estimate()
	if limit, err := strconv.Atoi(q.query.Get("limit")); err == nil && limit > 0 {
		count = min(count, limit)
	}
	if q.FieldSelector != "" && len(q.served.IndexedFields) > 0 {
		if sel, err := selectionOf(q); err == nil && sel.fieldIndex > 0 {
			count = min(count, expectedIndexMatches)
		}
	}
	bytes := int64(count) * int64(average)
	return flow.Work{Seats: min(1+int(bytes/bytesPerSeat), maxSeats), Bytes: bytes}
}

// expectedIndexMatches is the estimated number of objects with one value of an indexed field, for example the pods of a
// node.
const expectedIndexMatches = 250
