package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/header"
	"clusterctl/daemons/run"
)

// AccessReviewer authenticates and authorizes. client.AccessReviewer implements it with the API server.
type AccessReviewer interface {
	run.AccessReviewer
	IsResourceAllowed(ctx context.Context, user api.User, what authorizationv1.ResourceAttributes) (bool, error)
}

// server serves metrics.k8s.io for the API server, and the daemon's own pages for authorized clients.
type server struct {
	callers     *callers
	reviewer    AccessReviewer
	view        *objectView
	isSynced    func() bool
	daemonPages http.Handler // health, /metrics and pages
	log         *slog.Logger
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if path != "/apis" && !strings.HasPrefix(path, "/apis/") && !strings.HasPrefix(path, "/openapi/") {
		s.daemonPages.ServeHTTP(w, s.callers.withVerifiedChain(r))
		return
	}
	user, err := s.callers.forwardedUser(r)
	if err != nil {
		s.log.Debug("credentials refused", "path", path, "err", err)
		writeError(w, apierrors.NewUnauthorized(err.Error()))
		return
	}
	run.ConnOf(r.Context()).Identify()
	if err := s.answer(w, r, user); err != nil {
		writeError(w, err)
	}
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, user api.User) error {
	if document := documents[r.URL.Path]; document != nil {
		return s.describe(w, r, user, document)
	}
	q, ok := parseRequest(r)
	if !ok {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource",
		}}
	}
	if err := s.authorize(r.Context(), user, q); err != nil {
		return err
	}
	form, err := formatOf(r)
	switch {
	case err != nil:
		return err
	case r.Method != http.MethodGet && r.Method != http.MethodHead, q.verb == "watch":
		return apierrors.NewMethodNotSupported(q.resource(), q.verb)
	case !s.isSynced():
		return apierrors.NewServiceUnavailable("it is not known yet what is on the nodes")
	}
	if q.isHistory {
		past, err := s.view.history(q, time.Now())
		if err != nil {
			return err
		}
		return writeResponse(w, http.StatusOK, past)
	}
	answer, err := s.view.answer(q, time.Now())
	if err != nil {
		return err
	}
	if form.isTable {
		answer = table(answer, form.include)
	}
	return writeResponse(w, http.StatusOK, answer)
}

// authorize asks the API server again. A stolen front proxy certificate then gives no more permissions than those of
// the named user.
func (s *server) authorize(ctx context.Context, user api.User, q metricsRequest) error {
	if user.InGroup(api.GroupMasters) {
		return nil
	}
	allowed, err := s.reviewer.IsResourceAllowed(ctx, user, authorizationv1.ResourceAttributes{
		Verb: q.verb, Group: v1beta1.GroupName, Version: v1beta1.SchemeGroupVersion.Version, Resource: q.kind,
		Namespace: q.namespace, Name: q.name,
	})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if !allowed {
		return apierrors.NewForbidden(
			q.resource(),
			q.name,
			errors.New(
				"User \""+user.Name+"\" cannot "+q.verb+" resource \""+q.kind+"\" in API group \""+v1beta1.GroupName+
					"\""+q.permissionScope(),
			),
		)
	}
	return nil
}

// describe serves a discovery or OpenAPI document.
func (s *server) describe(w http.ResponseWriter, r *http.Request, user api.User, d *document) error {
	if !user.InGroup(api.GroupMasters) {
		if allowed, err := s.reviewer.IsPathAllowed(r.Context(), user, r.URL.Path); err != nil {
			return apierrors.NewInternalError(err)
		} else if !allowed {
			return apierrors.NewForbidden(schema.GroupResource{}, "",
				errors.New("User \""+user.Name+"\" cannot get path \""+r.URL.Path+"\""))
		}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "documents"}, strings.ToLower(r.Method))
	}
	if !isAccepted(r, jsonFormat) {
		return notAcceptable()
	}
	w.Header().Set("ETag", d.etag)
	if header.IsUnchanged(r, d.etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(d.text) // fails only if the client is gone
	return nil
}

func writeError(w http.ResponseWriter, err error) {
	var apiStatus apierrors.APIStatus
	if !errors.As(err, &apiStatus) {
		apiStatus = apierrors.NewInternalError(err)
	}
	status := apiStatus.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	_ = writeResponse(w, int(status.Code), &status) // a status can always be encoded
}

func writeResponse(w http.ResponseWriter, code int, answer any) error {
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // fails only if the client is gone
	return nil
}
