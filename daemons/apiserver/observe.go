package apiserver

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observed is what the server counts, under upstream's names.
type observed struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	// Streams over WebSockets, by how they ended.
	translated, tunnelled *prometheus.CounterVec
	store                 atomic.Pointer[error]
	storeHeard            atomic.Pointer[time.Time] // when it last did its work, as far as that is noted
}

func newObserved(s *Server) (*observed, error) {
	o := &observed{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Requests by verb, resource and answer.",
		}, []string{"verb", "group", "version", "resource", "subresource", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "How long requests took, besides watches and streams.",
			Buckets: []float64{.005, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 5, 10, 30, 60},
		}, []string{"verb", "group", "version", "resource", "subresource"}),
		translated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_translator_requests_total", Help: "Requests to exec and attach over a WebSocket's channels.",
		}, []string{"code"}),
		tunnelled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_stream_tunnel_requests_total", Help: "Requests to forward ports over SPDY within a WebSocket.",
		}, []string{"code"}),
	}
	unreadable := prometheus.NewDesc("apiserver_storage_unreadable_objects", "Objects stored that cannot be read; passing: whether their key's plugin does not answer.", []string{"group", "resource", "passing"}, nil)
	objects := prometheus.NewDesc("apiserver_resource_objects", "Objects stored.", []string{"group", "resource"}, nil)
	err := errors.Join(
		s.o.Env.Metrics.Register(o.requests), s.o.Env.Metrics.Register(o.duration),
		s.o.Env.Metrics.Register(o.translated), s.o.Env.Metrics.Register(o.tunnelled),
		s.o.Env.Metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests being worked on.",
		}, s.busy)),
		s.o.Env.Metrics.Register(collect{objects, unreadable, s}),
	)
	return o, err
}

// collect counts the objects of each kind when asked.
type collect struct {
	desc, unreadable *prometheus.Desc
	s                *Server
}

func (c collect) Describe(to chan<- *prometheus.Desc) { to <- c.desc; to <- c.unreadable }

func (c collect) Collect(to chan<- prometheus.Metric) {
	for _, r := range c.s.cache.Resources() {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(r.Len()), r.Kind.GVK.Group, r.Kind.Resource)
		if all, lasting := r.CountUnread(); all > 0 {
			to <- prometheus.MustNewConstMetric(c.unreadable, prometheus.GaugeValue, float64(lasting), r.Kind.GVK.Group, r.Kind.Resource, "false")
			to <- prometheus.MustNewConstMetric(c.unreadable, prometheus.GaugeValue, float64(all-lasting), r.Kind.GVK.Group, r.Kind.Resource, "true")
		}
	}
}

// done counts a request that has its answer. What is not served is counted under no
// resource, so that clients cannot make up labels.
func (o *observed) done(q *request, rec *recorder, start time.Time) {
	gvr, sub, verb := q.GroupVersionResource, q.Subresource, q.Verb
	if !q.known {
		gvr.Group, gvr.Version, gvr.Resource, sub = "", "", "", ""
		verb = "other"
	} else if rec.code == 404 {
		sub = ""
	}
	o.requests.WithLabelValues(verb, gvr.Group, gvr.Version, gvr.Resource, sub, strconv.Itoa(rec.code)).Inc()
	if !q.long() {
		o.duration.WithLabelValues(verb, gvr.Group, gvr.Version, gvr.Resource, sub).Observe(time.Since(start).Seconds())
	}
}

// storeWell says whether the store answered when last looked at.
func (s *Server) storeWell() error {
	if err := s.observed.store.Load(); err != nil {
		return *err
	}
	return errors.New("not looked at yet")
}

// storeAnswered notes that the store did what needs a majority of its members.
func (o *observed) storeAnswered(at time.Time) {
	o.store.Store(new(error))
	o.storeHeard.Store(&at)
}

// watchStore looks whether the store answers, whenever nothing was heard of it for a few seconds.
func (s *Server) watchStore(ctx context.Context) error {
	const silence = presenceEvery + presenceEvery/10 // what says that this server is there tells it, too
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if heard := s.observed.storeHeard.Load(); heard != nil && time.Since(*heard) < silence {
			pause = silence - time.Since(*heard)
			continue
		}
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := s.o.Store.Answers(call)
		cancel()
		if pause = silence; err != nil {
			s.observed.store.Store(&err)
			pause = 500 * time.Millisecond
		} else {
			s.observed.storeAnswered(time.Now())
		}
	}
}
