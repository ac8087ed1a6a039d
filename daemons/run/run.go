// Package run contains what all daemons have in common as processes: /livez, /readyz, /healthz and /metrics,
// notifications to systemd, and a graceful stop.
package run

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"clusterctl/daemons/run/manager"
	"clusterctl/daemons/run/watchdog"
)

// Env is a daemon's environment. Several daemons may run in one process, each with its own Env.
type Env struct {
	Log       *slog.Logger         // required
	Metrics   *prometheus.Registry // required; the daemon registers its collectors here
	Health    *Health              // required
	IdleTasks *IdleTasks           // required; work for when the daemon is idle
	About     *About               // required; what the daemon reports about itself
	// MoreMetrics maps paths below /metrics to additional metrics. They have the same access control as /metrics.
	MoreMetrics map[string]http.Handler
}

// NewEnv returns an Env in which only the process's own metrics are registered.
func NewEnv(log *slog.Logger) Env {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newBuildInfo(), newFeatureMetric())
	return Env{Log: log, Metrics: metrics, Health: &Health{}, IdleTasks: &IdleTasks{},
		About: &About{Started: time.Now()}}
}

// Check returns nil if what it checks is healthy. It must not block.
type Check func() error

// Health is the set of checks behind a daemon's health endpoints.
type Health struct {
	mu            sync.RWMutex
	live          map[string]Check
	ready         map[string]Check
	informational map[string]Check
	lastReasons   map[string]string // by name: why a check failed last

	once       sync.Once
	sliMetrics *slis
}

// AddLive adds a check to /livez, /healthz and /readyz. If it fails, only a restart helps.
func (h *Health) AddLive(name string, c Check) { h.add(&h.live, name, c) }

// AddReady adds a check to /readyz. While it fails, the daemon should not get requests.
func (h *Health) AddReady(name string, c Check) { h.add(&h.ready, name, c) }

// AddInformational adds a check that is served only under its own name, at /readyz/NAME. It does not affect the
// daemon's health.
func (h *Health) AddInformational(name string, c Check) { h.add(&h.informational, name, c) }

func (h *Health) add(m *map[string]Check, name string, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *m == nil {
		*m = map[string]Check{}
	}
	(*m)[name] = c
}

// Err returns the first failure of the live checks and, if ready, of the ready checks. A daemon without a ready check
// is not ready.
func (h *Health) Err(ready bool) error {
	for _, r := range h.results(ready, "") {
		if r.err != nil {
			return fmt.Errorf("%s: %w", r.name, r.err)
		}
	}
	return nil
}

type result struct {
	name string
	err  error
}

// results returns the results of the checks that count, or only that of single.
func (h *Health) results(ready bool, single string) []result {
	h.mu.RLock()
	checks := map[string]Check{"ping": func() error { return nil }}
	for n, c := range h.live {
		checks[n] = c
	}
	if ready || single != "" { // a single check is served under every path, even where it does not count
		if len(h.ready) == 0 {
			checks["startup"] = func() error { return fmt.Errorf("still starting") }
		}
		for n, c := range h.ready {
			checks[n] = c
		}
	}
	isInformational := h.informational[single]
	h.mu.RUnlock()
	if isInformational != nil {
		return []result{{single, isInformational()}}
	}
	if single != "" {
		one := map[string]Check{}
		if c := checks[single]; c != nil {
			one[single] = c
		}
		checks = one
	}
	results := make([]result, 0, len(checks))
	for n, c := range checks {
		results = append(results, result{n, c()})
	}
	sort.Slice(results, func(i, j int) bool { return results[i].name < results[j].name })
	return results
}

// Handler serves the health endpoints, /metrics and /metrics/slis. As in upstream, /livez/NAME is a single check,
// ?verbose lists all, ?exclude=NAME leaves one out, and any method is accepted.
func (e Env) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/healthz", "/readyz"} {
		mux.Handle(path, e.Health.endpoint(path, path == "/readyz", e.Log))
		mux.Handle(path+"/{check}", e.Health.endpoint(path, path == "/readyz", e.Log))
	}
	mux.Handle("/metrics", promhttp.HandlerFor(e.Metrics, promhttp.HandlerOpts{}))
	mux.Handle("/metrics/slis", e.Health.serveSLIs())
	for path, handler := range e.MoreMetrics {
		mux.Handle(path, handler)
	}
	return mux
}

// logFailure logs why a check fails, once for each reason. Clients without credentials do not get the reason.
func (h *Health) logFailure(r result, log *slog.Logger) {
	text := ""
	if r.err != nil {
		text = r.err.Error()
	}
	h.mu.Lock()
	before := h.lastReasons[r.name]
	if before != text {
		if h.lastReasons == nil {
			h.lastReasons = map[string]string{}
		}
		h.lastReasons[r.name] = text
	}
	h.mu.Unlock()
	switch {
	case before == text:
	case text != "":
		log.Info("a health check fails", "check", r.name, "err", r.err)
	default:
		log.Info("a health check is well again", "check", r.name)
	}
}

func (h *Health) endpoint(path string, ready bool, log *slog.Logger) http.HandlerFunc {
	name := strings.TrimPrefix(path, "/")
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if single := r.PathValue("check"); single != "" {
			results := h.results(ready, single)
			h.sharedSLIs().count(name, results)
			h.serveSingle(w, r, results, log)
			return
		}
		query := r.URL.Query()
		unknown := slices.Clone(query["exclude"])
		var out strings.Builder
		failed := false
		results := h.results(ready, "")
		h.sharedSLIs().count(name, results)
		for _, res := range results {
			if slices.Contains(query["exclude"], res.name) {
				unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == res.name })
				fmt.Fprintf(&out, "[+]%s excluded: ok\n", res.name)
				continue
			}
			h.logFailure(res, log)
			if res.err != nil {
				failed = true
				fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", res.name)
			} else {
				fmt.Fprintf(&out, "[+]%s ok\n", res.name)
			}
		}
		if len(unknown) > 0 {
			slices.Sort(unknown)
			unknown = slices.Compact(unknown)
			for i, name := range unknown {
				unknown[i] = strconv.Quote(name)
			}
			fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %s\n",
				strings.Join(unknown, ","))
		}
		switch _, verbose := query["verbose"]; {
		case failed:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, "%s%s check failed\n", out.String(), name)
		case verbose:
			fmt.Fprintf(w, "%s%s check passed\n", out.String(), name)
		default:
			fmt.Fprint(w, "ok")
		}
	}
}

// reasonsKey is the context key for the function that reports whether the client may see why a check fails.
type reasonsKey struct{}

// WithReasons returns a request that gets the reason of a failed check if isAllowed returns true. Reasons contain
// addresses and file names. They are withheld from other clients, and are logged.
func WithReasons(r *http.Request, isAllowed func() bool) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), reasonsKey{}, isAllowed))
}

// serveSingle answers for one check.
func (h *Health) serveSingle(w http.ResponseWriter, r *http.Request, results []result, log *slog.Logger) {
	if len(results) == 0 {
		http.NotFound(w, r)
		return
	}
	h.logFailure(results[0], log)
	if err := results[0].err; err != nil {
		reason := "reason withheld"
		if isAllowed, ok := r.Context().Value(reasonsKey{}).(func() bool); ok && isAllowed() {
			reason = err.Error()
		}
		http.Error(w, "internal server error: "+reason, http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "ok")
}

// Notify reports to systemd that the process is ready once h is ready, notifies its watchdog as long as h is live, and
// reports when the process stops. It returns when ctx ends. Outside systemd it does nothing.
func Notify(ctx context.Context, h *Health) {
	if !manager.IsAvailable() {
		return
	}
	send := func(message string) { _ = manager.Send(message) }
	defer send(manager.Stopping)
	// Check readiness often, since bring-up waits for it.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for h.Err(true) != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	tick.Stop()
	send(manager.Ready)
	watchdog.Watch(ctx, send, func(context.Context) error { return h.Err(false) })
	<-ctx.Done()
}
