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

// listBytes bounds what all lists that are being answered hold in memory together.
const listBytes = 512 << 20

// newFlow returns what shares the server's capacity out, nil when cfg wants none.
func newFlow(cfg config.APIServer, s *Server, env run.Env) (*flow.Controller, error) {
	if !cfg.EnablePriorityAndFairness {
		return nil, nil
	}
	return flow.New(flow.Config{
		Objects: s.Objects(), Seats: max(1, cfg.MaxRequestsInflight+cfg.MaxMutatingRequestsInflight), Bytes: listBytes,
		Wait: max(s.o.RequestTimeout/4, time.Second), Env: env,
	})
}

// flowObjects are the schemas and levels that every cluster has.
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

// takeTurn is the stage in which a request waits for its turn. Streams never do, and a watch
// has its seats until it has sent what there is.
func (s *Server) takeTurn(q *request) error {
	if s.o.Flow == nil {
		return s.admitInFlight(q)
	}
	if q.long() && q.Verb != "watch" {
		return nil
	}
	schema := s.o.Flow.Classify(&q.user, &q.Request)
	schema.SetHeaders(q.w.Header())
	began := time.Now()
	ticket, exempt := schema.Exempt()
	if !exempt {
		var err error
		if ticket, err = s.o.Flow.Enter(q.http.Context(), schema, &q.user, &q.Request, q.work()); err != nil {
			q.waited = time.Since(began)
			return tooMany(q)
		}
	}
	q.w.(*recorder).turn, q.schema, q.turnAt = ticket, schema, time.Now()
	q.waited = q.turnAt.Sub(began)
	ticket.Begin(q.waited)
	return nil
}

// tooMany tells a client to come again. As with upstream it is told in plain words and not as a Status: nothing is
// encoded for whom there is no room.
func tooMany(q *request) error {
	q.w.Header().Set("Retry-After", "1")
	http.Error(q.w, "Too many requests, please try again later.", http.StatusTooManyRequests)
	return errAnswered
}

// admitInFlight bounds how many requests are worked on at once, where nothing shares that out.
// Watches and streams are not counted, and health is always answered.
func (s *Server) admitInFlight(q *request) error {
	if q.long() || isHealth(q.Path) || s.enterInFlight(q) {
		return nil
	}
	return tooMany(q)
}

// enterInFlight counts a request, if there is room for it.
func (s *Server) enterInFlight(q *request) bool {
	select {
	case s.inFlight <- struct{}{}:
		q.w.(*recorder).onRelease = func() { <-s.inFlight }
		return true
	default:
		return false
	}
}

// bytesPerSeat is how much of a list one seat stands for, and mostSeats what a list takes at most.
const (
	bytesPerSeat = 1 << 20
	mostSeats    = 10
)

// work estimates what a request costs: one seat, and a list as many as it has bytes for.
func (q *request) work() flow.Work {
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
		if sel, err := selectionOf(q); err == nil && sel.field > 0 {
			count = min(count, expectedOfIndex)
		}
	}
	bytes := int64(count) * int64(average)
	return flow.Work{Seats: min(1+int(bytes/bytesPerSeat), mostSeats), Bytes: bytes}
}

// expectedOfIndex is about how many objects have one value of an indexed field: pods of a node.
const expectedOfIndex = 250
