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

// statusKind is what errors are.
var statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// status returns an error as the API tells it.
func status(err error) metav1.Status {
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
		errors.Is(err, os.ErrDeadlineExceeded): // the latter says so of what the client sends
		return apierrors.NewTimeoutError("the request did not complete within the allotted timeout", 0).ErrStatus
	case errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the request was given up", 0).ErrStatus
	}
	return apierrors.NewInternalError(err).ErrStatus
}

// fail answers with an error.
func (s *Server) fail(q *request, err error) {
	st := status(err)
	if st.Code == 0 {
		st.Code = http.StatusInternalServerError
	}
	if q.trail != nil {
		kept := st
		q.trail.event.ResponseStatus = &kept
	}
	if st.Code >= 500 && st.Code != http.StatusGatewayTimeout {
		s.log.Warn("a request failed", "method", q.http.Method, "path", q.Path, "user", q.user.Name, "err", err)
	}
	if q.w.(*recorder).code != 0 {
		return // the answer had begun: it breaks off
	}
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		q.w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	if st.Code == http.StatusUnauthorized {
		q.w.Header().Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
	}
	if st.Code == http.StatusGatewayTimeout && q.http.ProtoMajor == 1 {
		// Its time for reading is over, which the next request on the connection would take for its client's leaving.
		q.w.Header().Set("Connection", "close")
	}
	q.w.Header().Set("X-Content-Type-Options", "nosniff")
	// Errors come in the encoding that was asked for, and in no other shape than their own.
	if q.media == (wire.Media{}) { // it failed before that was looked at
		q.media, _ = wire.Negotiate(q.http, true, true) // what cannot be had is JSON
	}
	media := wire.Media{Format: q.media.Format, Pretty: q.media.Pretty}
	if err := media.WriteObject(q.w, int(st.Code), statusKind, &st); err != nil {
		s.log.Debug("an error could not be told", "path", q.Path, "err", err)
	}
}

// upstreamsFault tells what clients do wrong, and upstream has not classified, as upstream does: as a fault of its own
// without a reason.
func upstreamsFault(err error) error {
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

// invalid refuses an object for what is wrong with it.
func invalid(kind schema.GroupKind, name string, errs field.ErrorList) error {
	return api.Invalid(kind, name, errs)
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	code      int
	size      int64
	outside   atomic.Int64 // nanoseconds that webhooks took
	onRelease func()
	turn      flow.Ticket    // until it is given back
	onHeader  func(code int) // called before an answer begins
	also      io.Writer      // gets what is answered as well
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.begins(code)
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) begins(code int) {
	r.code = code
	if r.onHeader != nil {
		r.onHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	if r.code == 0 {
		r.begins(http.StatusOK)
	}
	if r.also != nil {
		_, _ = r.also.Write(data) // to memory
	}
	n, err := r.ResponseWriter.Write(data)
	r.size += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) release() {
	r.turn.Leave()
	r.turn = flow.Ticket{}
	if r.onRelease != nil {
		r.onRelease()
		r.onRelease = nil
	}
}

// otherObject refuses a write whose object is not the one that is stored under its name, or where nothing is, in the
// words of upstream's store.
func (s *Server) otherObject(q *request, meant, is types.UID) error {
	return apierrors.NewConflict(
		q.gr(),
		q.Name,
		fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
			s.cache.Key(q.kind(), q.key()), uidConflict(meant, is)),
	)
}

// uidConflict is the reason of a conflict when the object that is meant is another one,
// in upstream's words.
func uidConflict(meant, is types.UID) error {
	return errors.New(
		"Precondition failed: UID in precondition: " + string(meant) + ", UID in object meta: " + string(is),
	)
}
