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
	do func(*Server, *request) error
	// prompt does the same without waiting. It returns false if it would have to wait or if it fails. The request then
	// starts again on the ordinary path, so the stage must leave no effects. A stage without prompt sends every request
	// there.
	prompt func(*Server, *prompted) bool
	// taken performs the side effects of the stage, such as a log entry, once all stages have passed without waiting.
	taken func(*Server, *request)
}

// stages run for every request, in this order, until one of them answers it or fails. Writes have further stages, see
// write.go. The fast path in prompt.go uses this list, too.
var stages = []stage{
	{do: (*Server).identify, prompt: (*Server).identifyPromptly},
	{do: (*Server).audit, prompt: (*Server).auditPromptly, taken: (*Server).received},
	{do: (*Server).impersonate, prompt: (*Server).nobodyElse},
	{do: (*Server).takeTurn, prompt: (*Server).takeTurnPromptly, taken: (*Server).begun},
	{do: (*Server).authorize, prompt: (*Server).authorizePromptly},
	{do: (*Server).arrive, prompt: (*Server).isServed},
	{do: (*Server).negotiate, prompt: (*Server).negotiatePromptly},
	{do: (*Server).keepBodies, prompt: (*Server).keepBodiesPromptly},
	{do: (*Server).answer, prompt: (*Server).mayAnswerLater},
}

// maxBody is the maximum size of a request body, in bytes. It is upstream's limit.
const maxBody = 3 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w}
	q := s.read(rec, r)
	start := s.o.Now()
	s.observed.begin(q)
	defer s.observed.done(q, rec, start)
	defer s.audited(q, rec)
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
	q.nameForAudit()
	control := http.NewResponseController(w)
	var refused error
	if q.long() {
		_ = control.SetReadDeadline(time.Time{}) // not every connection has deadlines
		_ = control.SetWriteDeadline(time.Time{})
	} else {
		var patience time.Duration
		patience, refused = q.patience(s.o.RequestTimeout)
		ctx, cancel := q.within(patience, control, rec)
		defer cancel()
		if q.aggregated == nil {
			_ = control.SetReadDeadline(start.Add(patience))
		}
		_ = control.SetWriteDeadline(start.Add(patience + 5*time.Second))
		q.http = r.WithContext(ctx)
		q.http.Body = http.MaxBytesReader(rec, r.Body, maxBody)
	}
	defer func() {
		if q.over != nil {
			q.over()
		}
	}()
	if refused != nil {
		s.fail(q, refused)
		return
	}
	if q.endless() {
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
		if err := stage.do(s, q); errors.Is(err, errAnswered) {
			break
		} else if err != nil {
			s.fail(q, err)
			break
		}
	}
}

// within limits the time of a request. If the request is passed on to an aggregated server and becomes a stream, q.last
// lifts the limits and returns the request's seats.
func (q *request) within(
	patience time.Duration,
	control *http.ResponseController,
	rec *recorder,
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
	q.last = func() {
		if !timer.Stop() {
			return // the time limit has been reached
		}
		q.lasts = true
		_ = control.SetReadDeadline(time.Time{}) // not every connection has deadlines
		_ = control.SetWriteDeadline(time.Time{})
		rec.release()
	}
	return ctx, func() { timer.Stop(); cancel(nil) }
}

// cacheControl keeps intermediaries from caching responses.
const cacheControl = "no-cache, private"

// panicked answers a request whose handler panicked.
func (s *Server) panicked(q *request, rec *recorder, reason any) {
	if q.trail != nil {
		q.trail.panicked = true
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
		s.fail(q, apierrors.NewInternalError(errors.New("this request caused the server to fail; its log says more")))
	}
}

// errAnswered ends the stages of a request that has been answered.
var errAnswered = errors.New("answered")

// identify authenticates the request.
func (s *Server) identify(q *request) error {
	user, ok, err := s.known(q.http)
	if err != nil {
		s.log.Debug("credentials refused", "path", q.Path, "err", err)
		s.unknown(q)
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if ok {
		q.user = user
		run.VisitorOf(q.http.Context()).Identify()
		if s.o.While != nil && (q.long() || q.upgrades()) {
			var ctx context.Context
			ctx, q.over = s.o.While(q.http.Context(), q.http, user)
			q.http = q.http.WithContext(ctx)
		}
		return nil
	}
	q.user = api.User{Name: api.Anonymous, Groups: []string{api.GroupUnauthenticated}}
	if len(s.o.Authenticators) == 0 || s.o.Anonymous != nil && s.o.Anonymous(q.Path, anonymousMay(q.Path)) {
		return nil
	}
	s.unknown(q)
	return apierrors.NewUnauthorized("Unauthorized")
}

// known returns the user of a request's credentials. It returns false without credentials.
func (s *Server) known(r *http.Request) (api.User, bool, error) {
	for _, a := range s.o.Authenticators {
		user, ok, err := a.Authenticate(r)
		if err != nil {
			return api.User{}, false, err
		}
		if !ok {
			continue
		}
		return withAuthenticated(user), true, nil
	}
	return api.User{}, false, nil
}

// withAuthenticated adds the group of all authenticated users.
func withAuthenticated(user api.User) api.User {
	if !user.InGroup(api.GroupAuthenticated) && user.Name != api.Anonymous {
		user.Groups = append(user.Groups[:len(user.Groups):len(user.Groups)], api.GroupAuthenticated)
	}
	return user
}

// anonymousMay reports whether a path needs no credentials by default.
func anonymousMay(path string) bool {
	return isHealth(path) || path == "/version" || path == "/version/"
}

func isHealth(path string) bool {
	for _, p := range []string{"/livez", "/readyz", "/healthz"} {
		if path == p || strings.HasPrefix(path, p+"/") && !strings.Contains(path, "/..") {
			return true
		}
	}
	return false
}

// authorize checks whether the user may perform the request.
func (s *Server) authorize(q *request) error {
	if len(s.o.Authorizers) == 0 || anonymousMay(q.Path) && (q.Verb == "get" || isHealth(q.Path)) {
		return nil
	}
	why, err := s.decided(q.http.Context(), q.user, q.Request)
	if apierrors.IsForbidden(err) && !s.isFurnished() {
		// A new cluster has no roles yet. Its daemons, started together with this server, would take the refusal as
		// final and retry only seconds later.
		wait, cancel := context.WithTimeout(q.http.Context(), furnishing)
		defer cancel()
		select {
		case <-s.furnished:
			why, err = s.decided(q.http.Context(), q.user, q.Request)
		case <-wait.Done():
		}
	}
	q.trail.authorized(why, err)
	return err
}

// furnishing is how long a forbidden request waits for the default objects, such as RBAC roles, to be created.
const furnishing = 5 * time.Second

// allowed returns nil if the user may perform the request, and otherwise the error to answer with.
func (s *Server) allowed(ctx context.Context, user api.User, r api.Request) error {
	_, err := s.decided(ctx, user, r)
	return err
}

// decided is like allowed, and also returns the reason.
func (s *Server) decided(ctx context.Context, user api.User, r api.Request) (why string, err error) {
	var reasons []string
	for _, a := range s.o.Authorizers {
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
	s.observed.pass(q)
	if !q.Resource || !q.known {
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

// answer passes the request to its handler.
func (s *Server) answer(q *request) error {
	serving := s.serving.Load()
	if !q.Resource && q.aggregated == nil {
		q.aggregated = serving.document(
			q.Path,
		) // an aggregated server may have taken over the path since the request was parsed
	}
	switch {
	case q.Resource && q.known:
		return s.serveResource(q)
	case q.aggregated != nil:
		return s.passOn(q)
	case q.http.Method != http.MethodGet && serving.getOnly(q.Path):
		return methodNotAllowed(q)
	case serving.discovery.Knows(q.Path):
		serving.discovery.ServeHTTP(q.w, q.http)
	case strings.HasPrefix(q.Path, "/openapi/"):
		serving.openapi.ServeHTTP(q.w, q.http)
	case q.Path == "/version", q.Path == "/version/":
		return writeVersion(q)
	case isHealth(q.Path):
		s.own.ServeHTTP(q.w, s.withReasons(q))
	case q.Path == "/metrics", q.Path == "/metrics/slis":
		s.own.ServeHTTP(q.w, q.http)
	case strings.HasPrefix(q.Path, flow.DebugPath) && s.o.Flow != nil:
		s.o.Flow.ServeHTTP(q.w, q.http)
	case q.Path == "/statusz", q.Path == "/flagz":
		s.pages.ServeHTTP(q.w, q.http)
	case strings.HasPrefix(q.Path, "/debug/pprof/") && s.o.Profiling:
		profile(q)
	case s.o.TokenKeys != nil && (q.Path == "/.well-known/openid-configuration" || q.Path == "/openid/v1/jwks"):
		s.o.TokenKeys.ServeHTTP(q.w, q.http)
	case q.Path == "/":
		return s.writePaths(q)
	default:
		return nothingAt(q)
	}
	return nil
}
