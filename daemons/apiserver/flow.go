package apiserver

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/read"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// maxListBytes is how much memory, in bytes, all list responses in progress may use together.
const maxListBytes = 512 << 20

// newFlow returns the flow controller that shares the server's capacity among requests. It is nil if cfg disables
// priority and fairness.
func newFlow(cfg config.APIServer, objects api.Objects, env run.Env) (*flow.Controller, error) {
	if !cfg.EnablePriorityAndFairness {
		return nil, nil
	}
	return flow.New(flow.Config{
		Objects: objects, Seats: max(1, cfg.MaxRequestsInflight+cfg.MaxMutatingRequestsInflight),
		Bytes: maxListBytes,
		Wait:  max(cmp.Or(cfg.RequestTimeout, defaultRequestTimeout)/4, time.Second), Env: env,
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

// seats is the server's capacity for requests.
type seats struct {
	flow     *flow.Controller // shares the capacity; nil if inFlight limits it
	inFlight chan struct{}
}

// acquire is the stage in which a request waits for its seats. Streams do not wait. A watch holds its seats until
// it has sent its initial events.
func (s *seats) acquire(q *request.Request) error {
	if s.flow == nil {
		return s.limitInFlight(q)
	}
	if q.IsLongRunning() && q.Verb != "watch" {
		return nil
	}
	schema := s.flow.Classify(&q.User, &q.Request)
	schema.SetHeaders(q.Answer.Header())
	start := time.Now()
	ticket, exempt := schema.ExemptTicket()
	if !exempt {
		var err error
		if ticket, err = s.flow.Enter(q.HTTP.Context(), schema, &q.User, &q.Request,
			estimateWork(q)); err != nil {
			q.Answer.Wait = time.Since(start)
			return tooManyRequests(q)
		}
	}
	q.Answer.Ticket, q.Answer.Schema, q.Answer.GrantedAt = ticket, schema, time.Now()
	q.Answer.Wait = q.Answer.GrantedAt.Sub(start)
	ticket.Begin(q.Answer.Wait)
	return nil
}

// acquireFast is acquire if seats are free. The caller returns the seats if it does not take the request.
func (s *seats) acquireFast(q *request.Request) bool {
	if s.flow == nil {
		return s.tryEnterInFlight(q)
	}
	schema := s.flow.Classify(&q.User, &q.Request)
	schema.SetHeaders(q.Answer.Header())
	ticket, ok := schema.ExemptTicket()
	if !ok {
		ticket, ok = s.flow.Try(schema, estimateWork(q))
	}
	q.Answer.Ticket, q.Answer.Schema = ticket, schema
	return ok
}

// beginSeats records that a request holds its seats, once it is certain that it is taken.
func beginSeats(q *request.Request) { q.Answer.Ticket.Begin(0) }

// tooManyRequests asks a client to retry later. Like upstream it answers in plain text instead of a Status, so that
// encoding uses no capacity.
func tooManyRequests(q *request.Request) error {
	q.Answer.Header().Set("Retry-After", "1")
	http.Error(q.Answer, "Too many requests, please try again later.", http.StatusTooManyRequests)
	return request.ErrAnswered
}

// limitInFlight limits the number of concurrent requests when priority and fairness are disabled. Watches and streams
// do not count, and health checks are always answered.
func (s *seats) limitInFlight(q *request.Request) error {
	if q.IsLongRunning() || request.IsHealthPath(q.Path) || s.tryEnterInFlight(q) {
		return nil
	}
	return tooManyRequests(q)
}

// tryEnterInFlight counts a request, if the limit is not reached. It reports whether it did.
func (s *seats) tryEnterInFlight(q *request.Request) bool {
	select {
	case s.inFlight <- struct{}{}:
		q.Answer.OnRelease(func() { <-s.inFlight })
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
func estimateWork(q *request.Request) flow.Work {
	one := flow.Work{Seats: 1}
	if q.Cache == nil || q.Name != "" {
		return one
	}
	switch q.Verb {
	case "list":
	case "watch":
		if version := q.Query.Get("resourceVersion"); version != "" && version != "0" &&
			q.Query.Get("sendInitialEvents") == "" {
			return one
		}
	default:
		return one
	}
	count, average := q.Cache.Estimate()
	if limit, err := strconv.Atoi(q.Query.Get("limit")); err == nil && limit > 0 {
		count = min(count, limit)
	}
	if q.FieldSelector != "" && len(q.Served.IndexedFields) > 0 {
		if sel, err := read.Select(q); err == nil && sel.UsesIndex() {
			count = min(count, expectedIndexMatches)
		}
	}
	bytes := int64(count) * int64(average)
	return flow.Work{Seats: min(1+int(bytes/bytesPerSeat), maxSeats), Bytes: bytes}
}

// expectedIndexMatches is the estimated number of objects with one value of an indexed field, for example the pods of a
// node.
const expectedIndexMatches = 250
