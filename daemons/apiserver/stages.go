package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/identity"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
)

// stage is one step in handling a request.
type stage struct {
	run func(*request.Request) error
	// runFast does the same without waiting. It returns false if it would have to wait or if it fails. The request then
	// starts again on the ordinary path, so the stage must leave no effects. A stage without runFast sends every
	// request there.
	runFast func(*request.Request) bool
	// commit performs the side effects of the stage, such as a log entry, once all stages have passed without waiting.
	commit func(*request.Request)
}

// newStages returns the stages. They run for every request, in this order, until one of them answers it or fails.
// Writes have further stages, see write/stages.go. The fast path in fastpath.go uses this list, too.
func (s *Server) newStages() []stage {
	return []stage{
		{run: s.waitForCache, runFast: s.hasFilledCache},
		{run: s.identity.Authenticate, runFast: s.identity.TryAuthenticate},
		{run: s.audit.start, runFast: s.audit.startFast, commit: s.audit.recordReceived},
		{run: s.identity.Impersonate, runFast: hasNoImpersonation},
		{run: s.seats.acquire, runFast: s.seats.acquireFast, commit: beginSeats},
		{run: s.identity.Authorize, runFast: s.identity.TryAuthorize},
		{run: s.waitForDefinition, runFast: isServed},
		{run: s.negotiate, runFast: s.negotiateFast},
		{run: s.audit.recordBodies, runFast: s.audit.recordBodiesFast},
		{run: s.handle, runFast: canAnswerLater},
	}
}

// parseRequest parses a request.
func (s *Server) parseRequest(w http.ResponseWriter, r *http.Request) *request.Request {
	q := request.Parse(w, r, s.kinds.load())
	q.Answer.BodyBudget = s.bodyBudget
	return q
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := s.parseRequest(w, r)
	start := s.options.Now()
	s.metrics.recordArrival(q)
	defer s.metrics.recordDone(q, start)
	defer s.audit.recordCompleted(q)
	defer q.Answer.Release()
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.panicked(q, p)
		}
	}()
	q.Answer.Header().Set("Cache-Control", cacheControl)
	setAuditID(q)
	control := http.NewResponseController(w)
	var refused error
	if q.IsLongRunning() {
		_ = control.SetReadDeadline(time.Time{}) // not every connection has deadlines
		_ = control.SetWriteDeadline(time.Time{})
	} else {
		var timeout time.Duration
		timeout, refused = q.ResponseTimeout(s.options.Limits.RequestTimeout)
		ctx, cancel := s.withTimeout(q, timeout, control)
		defer cancel()
		if q.Aggregated == nil {
			_ = control.SetReadDeadline(time.Now().Add(timeout)) // not the server's clock: tests replace it
		}
		_ = control.SetWriteDeadline(time.Now().Add(timeout + 5*time.Second))
		q.HTTP = r.WithContext(ctx)
		q.HTTP.Body = http.MaxBytesReader(q.Answer, r.Body, request.MaxBody)
	}
	defer q.Answer.End()
	if refused != nil {
		q.WriteError(s.log, refused)
		return
	}
	if q.IsIncompletePath() {
		http.Error(q.Answer, fmt.Sprintf("Internal Server Error: %q: failed to create RequestInfo: unable to "+
			"determine kind and namespace from url, %s", r.RequestURI, r.URL), http.StatusInternalServerError)
		return
	}
	for _, stage := range s.stages {
		if err := stage.run(q); errors.Is(err, request.ErrAnswered) {
			break
		} else if err != nil {
			q.WriteError(s.log, err)
			break
		}
	}
}

// withTimeout limits the time of a request. If the request is passed on to an aggregated server and becomes a stream,
// Answer.BecomeStream lifts the limits and returns the request's seats.
func (s *Server) withTimeout(
	q *request.Request,
	timeout time.Duration,
	control *http.ResponseController,
) (context.Context, context.CancelFunc) {
	if q.Aggregated == nil {
		return context.WithTimeout(q.HTTP.Context(), timeout)
	}
	ctx, cancel := context.WithCancelCause(q.HTTP.Context())
	timer := time.AfterFunc(timeout, func() {
		cancel(context.DeadlineExceeded)
		// Cancel first. An expired read deadline ends the requests of the connection as if their clients had left.
		_ = control.SetReadDeadline(time.Now())
	})
	q.Answer.OnStream(func() bool {
		if !timer.Stop() {
			return false // the time limit has been reached
		}
		_ = control.SetReadDeadline(time.Time{}) // not every connection has deadlines
		_ = control.SetWriteDeadline(time.Time{})
		q.Answer.Release()
		s.metrics.endInFlight(q)
		return true
	})
	return ctx, func() { timer.Stop(); cancel(nil) }
}

// cacheControl keeps intermediaries from caching responses.
const cacheControl = "no-cache, private"

// panicked answers a request whose handler panicked.
func (s *Server) panicked(q *request.Request, reason any) {
	q.Answer.Audit.SetPanicked()
	s.log.Error("a request failed in an unexpected way", "method", q.HTTP.Method, "path", q.Path, "reason", reason,
		"stack", string(debug.Stack()))
	if q.Answer.Code() == 0 {
		q.WriteError(s.log, apierrors.NewInternalError(
			errors.New("this request caused the server to fail; its log says more")))
	}
}

// negotiate chooses the media type of the response.
func (s *Server) negotiate(q *request.Request) error {
	s.metrics.recordAuthorized(q)
	if !q.Resource || !q.IsServed {
		return nil
	}
	if q.IsStream() {
		return nil // the backend chooses the type
	}
	media, err := wire.Negotiate(q.HTTP, q.Served.Untyped == nil || q.Subresource == "scale",
		!q.Served.Virtual || q.Served.Row != nil)
	if q.Media = media; err != nil {
		return err
	}
	return q.TableOptions()
}

// negotiateFast is negotiate for objects that need no conversion.
func (s *Server) negotiateFast(q *request.Request) bool {
	return s.negotiate(q) == nil && !q.NeedsConversion()
}

// handle passes the request to its handler.
func (s *Server) handle(q *request.Request) error {
	serving := s.kinds.load()
	if !q.Resource && q.Aggregated == nil {
		// An aggregated server may have taken over the path since the request was parsed.
		q.Aggregated = serving.AggregatedDocument(q.Path)
	}
	switch {
	case q.Resource && q.IsServed:
		return s.resources.serve(q)
	case q.Aggregated != nil:
		return q.Aggregated(q)
	case q.HTTP.Method != http.MethodGet && serving.isGetOnly(q.Path):
		return request.MethodNotAllowed(q)
	case serving.discovery.Has(q.Path):
		serving.discovery.ServeHTTP(q.Answer, q.HTTP)
	case strings.HasPrefix(q.Path, "/openapi/"):
		serving.openapi.ServeHTTP(q.Answer, q.HTTP)
	case q.Path == "/version", q.Path == "/version/":
		return writeVersion(q)
	case request.IsHealthPath(q.Path):
		s.pages.status.ServeHTTP(q.Answer, s.withReasons(q))
	case q.Path == "/metrics", q.Path == "/metrics/slis":
		s.pages.status.ServeHTTP(q.Answer, q.HTTP)
	case strings.HasPrefix(q.Path, flow.DebugPath) && s.options.Limits.Flow != nil:
		s.options.Limits.Flow.ServeHTTP(q.Answer, q.HTTP)
	case q.Path == "/statusz", q.Path == "/flagz":
		s.pages.info.ServeHTTP(q.Answer, q.HTTP)
	case strings.HasPrefix(q.Path, "/debug/pprof/") && s.options.Profiling:
		serveProfile(q)
	case s.options.Access.TokenKeys != nil &&
		(q.Path == "/.well-known/openid-configuration" || q.Path == "/openid/v1/jwks"):
		s.options.Access.TokenKeys.ServeHTTP(q.Answer, q.HTTP)
	case q.Path == "/":
		return s.writePaths(q)
	default:
		return request.ServeNotFound(q)
	}
	return nil
}

const (
	// maxCacheWait is the maximum time that a request waits for the cache of a server that has just started.
	maxCacheWait = 10 * time.Second
	// maxCacheWaiters is the maximum number of requests that wait. They have not been authenticated yet.
	maxCacheWaiters = 1000
)

// waitForCache delays a request until the cache has been filled. With an empty cache, tokens and roles would be
// unknown, and writes would bypass quotas, policies and webhooks.
func (s *Server) waitForCache(q *request.Request) error {
	err := s.cache.CheckReady()
	if err == nil || identity.IsAnonymousPath(q.Path) {
		return nil
	}
	if s.cacheWaiters.Add(1) <= maxCacheWaiters {
		ctx, cancel := context.WithTimeout(q.HTTP.Context(), maxCacheWait)
		defer cancel()
		err = s.cache.WaitReady(ctx)
	}
	s.cacheWaiters.Add(-1)
	if err == nil {
		return nil
	}
	unavailable := apierrors.NewServiceUnavailable(err.Error())
	unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return unavailable
}

// hasFilledCache is waitForCache for a cache that has been filled.
func (s *Server) hasFilledCache(*request.Request) bool { return s.cache.CheckReady() == nil }

// waitForDefinition delays a request for a resource whose definition this server has not processed yet.
func (s *Server) waitForDefinition(q *request.Request) error {
	mayBeServed, err := s.background.definitions.Wait(q)
	if mayBeServed {
		q.LookUpKind(s.kinds.load())
	}
	return err
}
