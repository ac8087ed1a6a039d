package loop

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsAbsent reports whether an error is the API server's answer that exactly this object does not exist. Any other 404
// proves nothing: the kind may not be served at present, or a proxy on the way may have answered. Answers that are not
// a Status are excluded, because client-go itself fills the requested kind and name into their errors.
func IsAbsent(err error, resource, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name == name
}
