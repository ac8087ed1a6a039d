package read

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/store"
)

// An object that is stored but cannot be read is not treated as missing. A request for it fails with the reason, and so
// does a list that might include it.

// maxListedUnreadable is how many unreadable objects the error of a list names.
const maxListedUnreadable = 100

// checkReadable returns an error if an object that the selection may include cannot be read.
func (sel *Selection) checkReadable(q *request.Request) error {
	key := sel.prefix
	if sel.name != "" && (!q.Served.Namespaced || sel.prefix != "") {
		key += sel.name
	}
	all := q.Cache.ReadErrors(key, maxListedUnreadable+1)
	if len(all) == 0 {
		return nil
	}
	var causes []metav1.StatusCause
	for _, err := range all[:min(len(all), maxListedUnreadable)] {
		cause := metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse, Message: err.Error()}
		if unreadable := (*store.Unreadable)(nil); errors.As(err, &unreadable) {
			cause.Field = unreadable.Key
		}
		causes = append(causes, cause)
	}
	slices.SortFunc(causes, func(a, b metav1.StatusCause) int { return strings.Compare(a.Field, b.Field) })
	if len(all) > maxListedUnreadable {
		causes = append(causes,
			metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: "too many errors, the list is truncated"})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError,
		Details: &metav1.StatusDetails{
			Group:  q.Group,
			Kind:   q.GroupVersionResource.Resource,
			Name:   "list",
			Causes: causes,
		},
		Message: fmt.Sprintf("failed to read one or more %s from the storage", q.GroupResource()),
	}}
}

// watchError returns why a watch of the selection cannot continue after an event; nil if it can.
func (sel *Selection) watchError(q *request.Request, e *cache.Event) error {
	if e.Err == nil || !strings.HasPrefix(e.Prev.Key, sel.prefix) || sel.name != "" && sel.name != e.Prev.Name {
		return nil
	}
	if q.Cache.ReadError(e.Prev.Key) == nil {
		return apierrors.NewResourceExpired(fmt.Sprintf(
			"at resource version %d an object could not be read: list again", e.Revision))
	}
	return apierrors.NewInternalError(e.Err)
}
