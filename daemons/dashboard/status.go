package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newError(code int, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code),
		Reason: reason, Message: message}}
}

func errUnauthenticated() error {
	return apierrors.NewUnauthorized("you are not signed in, or the session is over")
}

func errForbidden(message string) error {
	return newError(http.StatusForbidden, metav1.StatusReasonForbidden, message)
}

func errNotFound(path string) error {
	return newError(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no page %q", path))
}

func errWrongHost(host string) error {
	return newError(http.StatusMisdirectedRequest, metav1.StatusReasonBadRequest,
		fmt.Sprintf("this dashboard is not %q", host))
}

// statusOf returns the status that describes an error. Statuses of the API server stay as they are.
func statusOf(err error) metav1.Status {
	var apiStatus apierrors.APIStatus
	var status metav1.Status
	var network net.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &apiStatus):
		status = apiStatus.Status()
	case errors.As(err, &tooLarge):
		status = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("at most %d bytes", tooLarge.Limit)).Status()
	case errors.Is(err, context.DeadlineExceeded):
		status = apierrors.NewTimeoutError("the API server did not answer in time", 1).Status()
	case errors.As(err, &network):
		status = apierrors.NewServiceUnavailable("the API server cannot be reached: " + err.Error()).Status()
	default:
		status = apierrors.NewInternalError(err).Status()
	}
	status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
	if status.Code < 400 || status.Code > 599 {
		status.Code = http.StatusInternalServerError
	}
	return status
}

func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	writeJSON(w, int(status.Code), &status)
}

// writeJSON answers with a value that can always be encoded.
func writeJSON(w http.ResponseWriter, code int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // fails only if the client is gone
}

// serveJSON returns a handler that answers with the value that a function returns for the visitor.
func serveJSON[T any](get func(ctx context.Context, s *session) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := get(r.Context(), sessionOf(r))
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, value)
	}
}
