package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/flow"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/store"
)

// statusKind is the kind of error responses.
var statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// statusOf returns the Status that describes an error to a client.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		st := known.Status()
		st.Kind, st.APIVersion = "Status", "v1"
		return st
	case errors.As(err, &large):
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", large.Limit)).ErrStatus
	case errors.Is(err, store.ErrUnavailable):
		return apierrors.NewTimeoutError(err.Error(), 0).ErrStatus
	case errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, os.ErrDeadlineExceeded): // the latter comes from reading the request body
		return apierrors.NewTimeoutError("the request did not complete within the allotted timeout", 0).ErrStatus
	case errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the request was given up", 0).ErrStatus
	}
	return apierrors.NewInternalError(err).ErrStatus
}

// writeError answers a request with an error.
func (s *Server) writeError(q *request, err error) {
	st := statusOf(err)
	if st.Code == 0 {
		st.Code = http.StatusInternalServerError
	}
	if q.auditRecord != nil {
		kept := st
		q.auditRecord.event.ResponseStatus = &kept
	}
	if st.Code >= 500 && st.Code != http.StatusGatewayTimeout {
		s.log.Warn("a request failed", "method", q.http.Method, "path", q.Path, "user", q.user.Name, "err", err)
	}
	if q.w.(*responseRecorder).code != 0 {
		return // the response has begun, so it is cut off
	}
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		q.w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	if st.Code == http.StatusUnauthorized {
		q.w.Header().Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
	}
	if st.Code == http.StatusGatewayTimeout && q.http.ProtoMajor == 1 {
		// The connection's read deadline has passed. A later request on it would take the failing reads for a client
		// that left.
		q.w.Header().Set("Connection", "close")
	}
	q.w.Header().Set("X-Content-Type-Options", "nosniff")
	// An error is sent in the encoding that was asked for, but never as a table or in another shape.
	if q.media == (wire.Media{}) { // the request failed before negotiation
		q.media, _ = wire.Negotiate(q.http, true, true) // falls back to JSON
	}
	media := wire.Media{Format: q.media.Format, Pretty: q.media.Pretty}
	if err := media.WriteObject(q.w, int(st.Code), statusKind, &st); err != nil {
		s.log.Debug("an error could not be told", "path", q.Path, "err", err)
	}
}

// asInternalError returns a client's error that upstream does not classify as upstream reports it: as an internal error
// without a reason.
func asInternalError(err error) error {
	if _, known := err.(apierrors.APIStatus); known || err == nil {
		return err
	}
	return &apierrors.StatusError{
		ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusInternalServerError,
			Message: err.Error(),
		},
	}
}

// invalidError returns the error that refuses an object for errs.
func invalidError(kind schema.GroupKind, name string, errs field.ErrorList) error {
	return api.Invalid(kind, name, errs)
}

// responseRecorder is a response writer that records the status code and the size of the response.
type responseRecorder struct {
	http.ResponseWriter
	code        int
	size        int64
	webhookTime atomic.Int64 // nanoseconds that webhooks took
	onRelease   func()
	ticket      flow.Ticket    // the flow control ticket, until it is returned
	onHeader    func(code int) // called before the response begins
	copyTo      io.Writer      // receives a copy of the response body
}

// WriteHeader implements http.ResponseWriter.
func (r *responseRecorder) WriteHeader(code int) {
	if r.code == 0 {
		r.beginResponse(code)
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *responseRecorder) beginResponse(code int) {
	r.code = code
	if r.onHeader != nil {
		r.onHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (r *responseRecorder) Write(data []byte) (int, error) {
	if r.code == 0 {
		r.beginResponse(http.StatusOK)
	}
	if r.copyTo != nil {
		_, _ = r.copyTo.Write(data) // writes to memory, cannot fail
	}
	n, err := r.ResponseWriter.Write(data)
	r.size += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *responseRecorder) release() {
	r.ticket.Release()
	r.ticket = flow.Ticket{}
	if r.onRelease != nil {
		r.onRelease()
		r.onRelease = nil
	}
}

// uidMismatch refuses a write whose UID is not that of the object stored under its name, or that has a UID while no
// object is stored. The message is that of upstream's store.
func (s *Server) uidMismatch(q *request, meant, is types.UID) error {
	return apierrors.NewConflict(
		q.groupResource(),
		q.Name,
		fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
			s.cache.Key(q.kind(), q.key()), uidConflict(meant, is)),
	)
}

// uidConflict returns the reason of a conflict of UIDs, in upstream's words.
func uidConflict(meant, is types.UID) error {
	return errors.New(
		"Precondition failed: UID in precondition: " + string(meant) + ", UID in object meta: " + string(is),
	)
}
