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

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/run"
)

// stage is one step in handling a request.
type stage struct {
	run func(*Server, *request) error
	// runFast does the same without waiting. It returns false if it would have to wait or if it fails. The request then
	// starts again on the ordinary path, so the stage must leave no effects. A stage without prompt sends every request
	// there.
	runFast func(*Server, *fastRequest) bool
	// commit performs the side effects of the stage, such as a log entry, once all stages have passed without waiting.
	commit func(*Server, *request)
}

// stages run for every request, in this order, until one of them answers it or fails. Writes have further stages, see
// write.go. The fast path in prompt.go uses this list, too.
var stages = []stage{
	{run: (*Server).authenticate, runFast: (*Server).authenticateFast},
	{run: (*Server).startAudit, runFast: (*Server).auditFast, commit: (*Server).recordReceived},
	{run: (*Server).impersonate, runFast: (*Server).hasNoImpersonation},
	{run: (*Server).acquireSeats, runFast: (*Server).acquireSeatsFast, commit: (*Server).commitSeats},
	{run: (*Server).authorize, runFast: (*Server).authorizeFast},
	{run: (*Server).waitForDefinition, runFast: (*Server).isServed},
	{run: (*Server).negotiate, runFast: (*Server).negotiateFast},
	{run: (*Server).recordBodies, runFast: (*Server).recordBodiesFast},
	{run: (*Server).handle, runFast: (*Server).canAnswerLater},
}

// maxBody is the maximum size of a request body, in bytes. It is upstream's limit.
const maxBody = 3 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &responseRecorder{ResponseWriter: w}
	q := s.parseRequest(rec, r)
	start := s.options.Now()
	s.metrics.recordArrival(q)
	defer s.metrics.recordDone(q, rec, start)
	defer s.recordCompleted(q, rec)
	defer rec.release()
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.panicked(q, rec, p)
		}
	}()
	rec.Header().Set("Cache-Control", cacheControl)
	q.setAuditID()
	control := http.NewResponseController(w)
	var refused error
	if q.isLongRunning() {
		_ = control.SetReadDeadline(time.Time{}) // not every connection has deadlines
		_ = control.SetWriteDeadline(time.Time{})
	} else {
		var patience time.Duration
		patience, refused = q.responseTimeout(s.options.RequestTimeout)
		ctx, cancel := q.withTimeout(patience, control, rec)
		defer cancel()
		if q.aggregated == nil {
			_ = control.SetReadDeadline(time.Now().Add(patience)) // not the server's clock: tests replace it
		}
		_ = control.SetWriteDeadline(time.Now().Add(patience + 5*time.Second))
		q.http = r.WithContext(ctx)
		q.http.Body = http.MaxBytesReader(rec, r.Body, maxBody)
	}
	defer func() {
		if q.onEnd != nil {
			q.onEnd()
		}
	}()
	if refused != nil {
		s.writeError(q, refused)
		return
	}
	if q.isIncompletePath() {
		http.Error(
			rec,
			fmt.Sprintf(
				"Internal Server Error: %q: failed to create RequestInfo: unable to determine kind and namespace "+
					"from url, %s",
				r.RequestURI,
				r.URL,
			),
			http.StatusInternalServerError,
		)
		return
	}
	for _, stage := range stages {
		if err := stage.run(s, q); errors.Is(err, errAnswered) {
			break
		} else if err != nil {
			s.writeError(q, err)
			break
		}
	}
}

// withTimeout limits the time of a request. If the request is passed on to an aggregated server and becomes a stream,
// q.last lifts the limits and returns the request's seats.
func (q *request) withTimeout(
	patience time.Duration,
	control *http.ResponseController,
	rec *responseRecorder,
) (context.Context, context.CancelFunc) {
	if q.aggregated == nil {
		return context.WithTimeout(q.http.Context(), patience)
	}
	ctx, cancel := context.WithCancelCause(q.http.Context())
	timer := time.AfterFunc(patience, func() {
		cancel(context.DeadlineExceeded)
		// Cancel first. An expired read deadline ends the requests of the connection as if their clients had left.
		_ = control.SetReadDeadline(time.Now())
	})
	q.becomeStream = func() {
		if !timer.Stop() {
			return // the time limit has been reached
		}
		q.isStream = true
		_ = control.SetReadDeadline(time.Time{}) // not every connection has deadlines
		_ = control.SetWriteDeadline(time.Time{})
		rec.release()
	}
	return ctx, func() { timer.Stop(); cancel(nil) }
}

// cacheControl keeps intermediaries from caching responses.
const cacheControl = "no-cache, private"

// panicked answers a request whose handler panicked.
func (s *Server) panicked(q *request, rec *responseRecorder, reason any) {
	if q.auditRecord != nil {
		q.auditRecord.hasPanicked = true
	}
	s.log.Error(
		"a request failed in an unexpected way",
		"method",
		q.http.Method,
		"path",
		q.Path,
		"reason",
		reason,
		"stack",
		string(debug.Stack()),
	)
	if rec.code == 0 {
		s.writeError(q, apierrors.NewInternalError(errors.New("this request caused the server to fail; its log says "+
			"more")))
	}
}

// errAnswered ends the stages of a request that has been answered.
var errAnswered = errors.New("answered")

// authenticate authenticates the request.
func (s *Server) authenticate(q *request) error {
	user, ok, err := s.lookupUser(q.http)
	if err != nil {
		s.log.Debug("credentials refused", "path", q.Path, "err", err)
		s.recordUnauthenticated(q)
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if ok {
		q.user = user
		run.ConnOf(q.http.Context()).Identify()
		if s.options.UntilRevoked != nil && (q.isLongRunning() || q.canUpgrade()) {
			var ctx context.Context
			ctx, q.onEnd = s.options.UntilRevoked(q.http.Context(), q.http, user)
			q.http = q.http.WithContext(ctx)
		}
		return nil
	}
	q.user = api.User{Name: api.Anonymous, Groups: []string{api.GroupUnauthenticated}}
	if len(s.options.Authenticators) == 0 || s.options.Anonymous != nil &&
		s.options.Anonymous(q.Path, isAnonymousPath(q.Path)) {
		return nil
	}
	s.recordUnauthenticated(q)
	return apierrors.NewUnauthorized("Unauthorized")
}

// lookupUser returns the user of a request's credentials. It returns false without credentials.
func (s *Server) lookupUser(r *http.Request) (api.User, bool, error) {
	for _, a := range s.options.Authenticators {
		user, ok, err := a.Authenticate(r)
		if err != nil {
			return api.User{}, false, err
		}
		if !ok {
			continue
		}
		return withAuthenticatedGroup(user), true, nil
	}
	return api.User{}, false, nil
}

// withAuthenticatedGroup adds the group of all authenticated users.
func withAuthenticatedGroup(user api.User) api.User {
	if !user.InGroup(api.GroupAuthenticated) && user.Name != api.Anonymous {
		user.Groups = append(user.Groups[:len(user.Groups):len(user.Groups)], api.GroupAuthenticated)
	}
	return user
}

// isAnonymousPath reports whether a path needs no credentials by default.
func isAnonymousPath(path string) bool {
	return isHealthPath(path) || path == "/version" || path == "/version/"
}

func isHealthPath(path string) bool {
	for _, p := range []string{"/livez", "/readyz", "/healthz"} {
		if path == p || strings.HasPrefix(path, p+"/") && !strings.Contains(path, "/..") {
			return true
		}
	}
	return false
}

// authorize checks whether the user may perform the request.
func (s *Server) authorize(q *request) error {
	if len(s.options.Authorizers) == 0 || isAnonymousPath(q.Path) && (q.Verb == "get" || isHealthPath(q.Path)) {
		return nil
	}
	why, err := s.authorizeWithReason(q.http.Context(), q.user, q.Request)
	if apierrors.IsForbidden(err) && !s.isBootstrapped() {
		// A new cluster has no roles yet. Its daemons, started together with this server, would take the refusal as
		// final and retry only seconds later.
		wait, cancel := context.WithTimeout(q.http.Context(), bootstrapWait)
		defer cancel()
		select {
		case <-s.bootstrapDone:
			why, err = s.authorizeWithReason(q.http.Context(), q.user, q.Request)
		case <-wait.Done():
		}
	}
	q.auditRecord.setAuthorization(why, err)
	return err
}

// bootstrapWait is how long a forbidden request waits for the default objects, such as RBAC roles, to be created.
const bootstrapWait = 5 * time.Second

// authorizeUser returns nil if the user may perform the request, and otherwise the error to answer with.
func (s *Server) authorizeUser(ctx context.Context, user api.User, r api.Request) error {
	_, err := s.authorizeWithReason(ctx, user, r)
	return err
}

// authorizeWithReason is like allowed, and also returns the reason.
func (s *Server) authorizeWithReason(ctx context.Context, user api.User, r api.Request) (why string, err error) {
	var reasons []string
	for _, a := range s.options.Authorizers {
		decision, reason, err := a.Authorize(ctx, user, r)
		switch {
		case err != nil:
			reasons = append(reasons, err.Error())
		case decision == api.Allow:
			return reason, nil
		case reason != "":
			reasons = append(reasons, reason)
		}
		if decision == api.Deny {
			break
		}
	}
	why = strings.Join(reasons, ", ")
	return why, forbidden(user, r, why)
}

func forbidden(user api.User, r api.Request, reason string) error {
	var text string
	if !r.Resource {
		text = fmt.Sprintf("User %q cannot %s path %q", user.Name, r.Verb, r.Path)
	} else {
		resource := r.GroupVersionResource.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		text = fmt.Sprintf("User %q cannot %s resource %q in API group %q", user.Name, r.Verb, resource, r.Group)
		if r.Namespace != "" {
			text += fmt.Sprintf(" in the namespace %q", r.Namespace)
		} else {
			text += " at the cluster scope"
		}
	}
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(r.GroupResource(), r.Name, errors.New(text))
}

// negotiate chooses the media type of the response.
func (s *Server) negotiate(q *request) error {
	s.metrics.recordAuthorized(q)
	if !q.Resource || !q.isServed {
		return nil
	}
	switch q.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return nil // the backend chooses the type
	}
	media, err := wire.Negotiate(
		q.http,
		q.served.Untyped == nil || q.Subresource == "scale",
		!q.served.Virtual || q.served.Row != nil,
	)
	if q.media = media; err != nil {
		return err
	}
	return q.tableOptions()
}

// handle passes the request to its handler.
func (s *Server) handle(q *request) error {
	serving := s.serving.Load()
	if !q.Resource && q.aggregated == nil {
		q.aggregated = serving.serverOfDocument(
			q.Path,
		) // an aggregated server may have taken over the path since the request was parsed
	}
	switch {
	case q.Resource && q.isServed:
		return s.serveResource(q)
	case q.aggregated != nil:
		return s.proxyToAggregated(q)
	case q.http.Method != http.MethodGet && serving.isGetOnly(q.Path):
		return methodNotAllowed(q)
	case serving.discovery.Has(q.Path):
		serving.discovery.ServeHTTP(q.w, q.http)
	case strings.HasPrefix(q.Path, "/openapi/"):
		serving.openapi.ServeHTTP(q.w, q.http)
	case q.Path == "/version", q.Path == "/version/":
		return writeVersion(q)
	case isHealthPath(q.Path):
		s.statusHandler.ServeHTTP(q.w, s.withReasons(q))
	case q.Path == "/metrics", q.Path == "/metrics/slis":
		s.statusHandler.ServeHTTP(q.w, q.http)
	case strings.HasPrefix(q.Path, flow.DebugPath) && s.options.Flow != nil:
		s.options.Flow.ServeHTTP(q.w, q.http)
	case q.Path == "/statusz", q.Path == "/flagz":
		s.infoHandler.ServeHTTP(q.w, q.http)
	case strings.HasPrefix(q.Path, "/debug/pprof/") && s.options.Profiling:
		serveProfile(q)
	case s.options.TokenKeys != nil && (q.Path == "/.well-known/openid-configuration" || q.Path == "/openid/v1/jwks"):
		s.options.TokenKeys.ServeHTTP(q.w, q.http)
	case q.Path == "/":
		return s.writePaths(q)
	default:
		return serveNotFound(q)
	}
	return nil
}
