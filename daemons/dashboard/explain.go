package dashboard

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/kube/why"
)

// explain answers /api/why.
func explain(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	v := sessionOf(r).visitor
	clients, err := why.New(v.config)
	if err != nil {
		writeError(w, err)
		return
	}
	report, err := why.Explain(r.Context(), clients, why.Ref{Group: q.Get("group"), Resource: q.Get("resource"),
		Namespace: q.Get("namespace"), Name: q.Get("name")})
	if err != nil {
		writeError(w, explainError(err))
		return
	}
	writeJSON(w, http.StatusOK, report)
}

// explainError returns the error of a request for an explanation. An error that is not of the API server is about the
// object: its kind cannot be explained, or it does not exist.
func explainError(err error) error {
	var apiStatus apierrors.APIStatus
	if errors.As(err, &apiStatus) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return apierrors.NewBadRequest(err.Error())
}
