package loop

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Absent says whether an error is the API server's word that this object does not exist. Any other 404 says nothing
// about it: the kind may not be served at present, or somebody on the way has not found something else. To an answer
// that is no Status the client itself adds what it asked for.
func Absent(err error, resource, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.IsUnexpectedServerError(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name == name
}
