package request

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/store"
)

// StatusKind is the kind of error responses.
var StatusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

// StatusOf returns the Status that describes an error to a client.
func StatusOf(err error) metav1.Status {
	var apiStatus apierrors.APIStatus
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &apiStatus):
		st := apiStatus.Status()
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

// WriteError answers a request with an error.
func (q *Request) WriteError(log *slog.Logger, err error) {
	st := StatusOf(err)
	if st.Code == 0 {
		st.Code = http.StatusInternalServerError
	}
	q.Answer.Audit.SetStatus(st)
	if st.Code >= 500 && st.Code != http.StatusGatewayTimeout {
		log.Warn("a request failed", "method", q.HTTP.Method, "path", q.Path, "user", q.User.Name, "err", err)
	}
	if q.Answer.Code() != 0 {
		return // the response has begun, so it is cut off
	}
	header := q.Answer.Header()
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	if st.Code == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="kubernetes"`)
	}
	if st.Code == http.StatusGatewayTimeout && q.HTTP.ProtoMajor == 1 {
		// The connection's read deadline has passed. A later request on it would take the failing reads for a client
		// that left.
		header.Set("Connection", "close")
	}
	header.Set("X-Content-Type-Options", "nosniff")
	// An error is sent in the encoding that was asked for, but never as a table or in another shape.
	media := q.Media
	if media == (wire.Media{}) { // the request failed before negotiation
		media, _ = wire.Negotiate(q.HTTP, true, true) // falls back to JSON
	}
	media = wire.Media{Format: media.Format, Pretty: media.Pretty}
	if err := media.WriteObject(q.Answer, int(st.Code), StatusKind, &st); err != nil {
		log.Debug("cannot send an error", "path", q.Path, "err", err)
	}
}

// AsInternalError returns a client's error that upstream does not classify as upstream reports it: as an internal error
// without a reason.
func AsInternalError(err error) error {
	if _, ok := err.(apierrors.APIStatus); ok || err == nil {
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

// InvalidError returns the error that refuses an object for errs.
func InvalidError(kind schema.GroupKind, name string, errs field.ErrorList) error {
	return api.Invalid(kind, name, errs)
}

// UnavailableError converts an error of the store to one that clients understand.
func UnavailableError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) ||
		errors.As(err, new(apierrors.APIStatus)) ||
		errors.As(err, new(*store.Unreadable)) {
		return err // StatusOf handles this error
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the store did not answer in time", 0)
	}
	if errors.Is(err, store.ErrTooLarge) {
		return apierrors.NewRequestEntityTooLargeError("the object is larger than the store takes")
	}
	return apierrors.NewInternalError(err)
}

// ErrAnswered ends the stages of a request that has been answered.
var ErrAnswered = errors.New("answered")
