package write

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/store"
)

const (
	ignoreReadErrors     = "ignoreStoreReadErrorWithClusterBreakingPotential"
	ignoreReadErrorsVerb = "unsafe-delete-ignore-read-errors"
)

// ignoresReadErrors reports whether an object is to be deleted although it cannot be read.
func ignoresReadErrors(o *metav1.DeleteOptions) bool {
	ignore := o.IgnoreStoreReadErrorWithClusterBreakingPotential
	return ignore != nil && *ignore
}

// deleteUnreadable deletes an object that cannot be read, if the user may do that. Its finalizers, owners and
// dependents are unknown, so they are ignored. Watches need no event: they had to list again when the object became
// unreadable.
func (s *Writes) deleteUnreadable(q *request.Request) error {
	ctx := q.HTTP.Context()
	q.Answer.Audit.Annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	attributes := q.Request
	attributes.Verb = ignoreReadErrorsVerb
	if err := s.server.Authorize(ctx, q.User, attributes); err != nil {
		return apierrors.NewForbidden(q.GroupResource(), q.Name, fmt.Errorf("not permitted to do %q, reason: %w",
			ignoreReadErrorsVerb, err))
	}
	key := q.Key()
	live, err := s.readStored(ctx, q, key)
	unreadable := (*store.Unreadable)(nil)
	switch {
	case errors.As(err, &unreadable):
	case err != nil:
		return err
	case live == nil:
		return apierrors.NewNotFound(q.GroupResource(), q.Name)
	default:
		return request.InvalidError(
			schema.GroupKind{Group: q.Group, Kind: q.GroupVersionResource.Resource},
			q.Name,
			field.ErrorList{field.Invalid(field.NewPath(ignoreReadErrors), true,
				"is exclusively used to delete corrupt object(s), try again by removing this option")},
		)
	}
	if unreadable.Temporary {
		return apierrors.NewInternalError(fmt.Errorf(
			"the object is not deleted, since it can be read when the plugin that keeps its key answers: %w",
			unreadable))
	}
	if err := s.admitUnreadableDeletion(ctx, q); err != nil {
		return err
	}
	full := s.config.Cache.Key(q.StoredKind(), key)
	r, err := s.config.Store.Commit(ctx,
		store.Txn{Guards: []store.Guard{{Key: full, Revision: unreadable.Revision}}, Deletes: []string{full}})
	if err != nil {
		return request.UnavailableError(err)
	}
	if !r.Done {
		return apierrors.NewConflict(q.GroupResource(), q.Name, errors.New("the object was written meanwhile"))
	}
	s.config.Log.Warn("deleted an object that cannot be read", "key", full, "revision", unreadable.Revision, "user",
		q.User.Name)
	return q.Media.WriteObject(q.Answer, http.StatusOK, request.StatusKind, &metav1.Status{
		Status:  metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: q.Name, Group: q.Group, Kind: q.GroupVersionResource.Resource},
	})
}

// admitUnreadableDeletion calls the validating plugins with an object that has only its name and namespace. Checks that
// depend on unreadable objects are skipped, because this request is the way to delete those objects.
func (s *Writes) admitUnreadableDeletion(ctx context.Context, q *request.Request) error {
	w := &write{s: s, q: q}
	a := w.begin("DELETE")
	a.live.obj = q.Served.New()
	m, err := meta.Accessor(a.live.obj)
	if err != nil {
		return err
	}
	m.SetName(q.Name)
	m.SetNamespace(q.Namespace)
	a.live.obj.GetObjectKind().SetGroupVersionKind(q.Served.GVK)
	admission := a.admission()
	admission.Name, admission.Subresource = q.Name, ""
	return s.admitter.runValidators(ctx, s.admitter.all, admission)
}
