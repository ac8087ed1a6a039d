package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/match"
	"clusterctl/daemons/store"
)

// What is stored and cannot be read is not missing. Who asks for it is told that it cannot be read, and so is who asks
// for a list that it might be in; and what depends on it is refused.

// live returns the object that a request names, as the cache has it.
func (q *request) live() (*cache.Entry, error) {
	if err := q.cache.Unread(q.key()); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	e := q.cache.Get(q.key())
	if e == nil {
		return nil, apierrors.NewNotFound(q.gr(), q.Name)
	}
	return e, nil
}

// mostUnreadable is how many objects a list names that cannot be read.
const mostUnreadable = 100

// complete returns nil if everything that a selection may be about can be read, and the error of the list otherwise.
func (sel *selection) complete(q *request) error {
	key := sel.prefix
	if sel.name != "" && (!q.served.Namespaced || sel.prefix != "") {
		key += sel.name
	}
	all := q.cache.AllUnread(key, mostUnreadable+1)
	if len(all) == 0 {
		return nil
	}
	var causes []metav1.StatusCause
	for _, err := range all[:min(len(all), mostUnreadable)] {
		cause := metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse, Message: err.Error()}
		if why := (*store.Unreadable)(nil); errors.As(err, &why) {
			cause.Field = why.Key
		}
		causes = append(causes, cause)
	}
	slices.SortFunc(causes, func(a, b metav1.StatusCause) int { return strings.Compare(a.Field, b.Field) })
	if len(all) > mostUnreadable {
		causes = append(
			causes,
			metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: "too many errors, the list is truncated"},
		)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonStoreReadError,
		Details: &metav1.StatusDetails{
			Group:  q.Group,
			Kind:   q.GroupVersionResource.Resource,
			Name:   "list",
			Causes: causes,
		},
		Message: fmt.Sprintf("failed to read one or more %s from the storage", q.gr()),
	}}
}

// lost returns why a watch of the selection cannot go on after an event; nil if it can.
func (sel *selection) lost(q *request, e *cache.Event) error {
	if e.Err == nil || !strings.HasPrefix(e.Prev.Key, sel.prefix) || sel.name != "" && sel.name != e.Prev.Name {
		return nil
	}
	if q.cache.Unread(e.Prev.Key) == nil {
		return apierrors.NewResourceExpired(
			fmt.Sprintf("at resource version %d an object could not be read: list again", e.Revision),
		)
	}
	return apierrors.NewInternalError(e.Err)
}

// reliance is what admission of some writes relies upon: that all objects of a resource, or those of the write's
// namespace, can be read. Without them it would admit what they refuse.
type reliance struct {
	on  schema.GroupResource
	key func(a *api.Admission) string // what of it, as cache.Resource.Unread wants it; nil: all
	by  func(a *api.Admission) bool
}

var reliances = func() []reliance {
	var list []reliance
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		list = append(
			list,
			reliance{
				schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: resource},
				nil,
				func(a *api.Admission) bool { return !match.Exempt(a) },
			},
		)
	}
	inside := func(a *api.Admission) string { return a.Namespace + "/" }
	namespaced := func(a *api.Admission) bool {
		return a.Namespace != "" && (a.Operation == "CREATE" || a.Operation == "UPDATE")
	}
	creates := func(resources ...string) func(*api.Admission) bool {
		return func(a *api.Admission) bool {
			return a.Operation == "CREATE" && a.Subresource == "" &&
				slices.Contains(resources, a.Resource.GroupResource().String())
		}
	}
	finalizes := func(a *api.Admission) bool {
		return a.Resource.Resource == "namespaces" &&
			a.Subresource == "finalize"
	}
	return append(
		list,
		reliance{
			schema.GroupResource{Resource: "namespaces"},
			func(a *api.Admission) string { return a.Namespace },
			namespaced,
		},
		reliance{schema.GroupResource{Resource: "resourcequotas"}, inside, namespaced},
		reliance{schema.GroupResource{Resource: "limitranges"}, inside, func(a *api.Admission) bool {
			return namespaced(a) && (a.Resource.Resource == "pods" || a.Resource.Resource == "persistentvolumeclaims")
		}},
		reliance{
			schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"},
			nil,
			creates("pods", "priorityclasses.scheduling.k8s.io"),
		},
		reliance{
			schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"},
			nil,
			creates("persistentvolumeclaims"),
		},
		reliance{
			schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"},
			nil,
			creates("ingresses.networking.k8s.io"),
		},
		// A namespace that is let go takes with it what is of kinds that nobody can name at present.
		reliance{definitions.GroupResource(), nil, finalizes},
		reliance{registrations.GroupResource(), nil, finalizes},
	)
}()

// reliable refuses a write whose admission relies on what cannot be read.
func (s *Server) reliable(a *api.Admission) error {
	if a.Internal {
		return nil // its own bookkeeping, as with webhooks
	}
	for i := range reliances {
		r := &reliances[i]
		resource := s.cache.Resource(r.on)
		if resource == nil || resource.Unread("") == nil || !r.by(a) {
			continue
		}
		key := ""
		if r.key != nil {
			key = r.key(a)
		}
		if err := resource.Unread(key); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("the write depends on what cannot be read: %w", err))
		}
	}
	return s.countable(a)
}

// countable refuses a write in a namespace with quotas when how much there is of the kind is not known.
func (s *Server) countable(a *api.Admission) error {
	if a.Operation == "DELETE" || a.Operation == "CONNECT" || a.Namespace == "" {
		return nil
	}
	resource := s.cache.Resource(a.Resource.GroupResource())
	if resource == nil {
		return nil
	}
	err := resource.Unread(a.Namespace + "/")
	if quotas := s.cache.Resource(schema.GroupResource{Resource: "resourcequotas"}); err != nil && quotas != nil &&
		quotas.Snapshot().Count(a.Namespace) > 0 {
		return apierrors.NewInternalError(fmt.Errorf("what the namespace's quotas count cannot be read: %w", err))
	}
	return nil
}

// mostToldUnreadable is how many objects of a resource the health check names.
const mostToldUnreadable = 10

// storedReadable is a health check that says which objects cannot be read. It does not make the server unready: they
// are as unreadable at every other one.
func (s *Server) storedReadable() error {
	var found []error
	for _, r := range s.cache.Resources() {
		if some := r.AllUnread("", mostToldUnreadable); len(some) > 0 {
			n, _ := r.CountUnread()
			found = append(found, fmt.Errorf("%d %s cannot be read: %w", n, r.Kind.GR(), errors.Join(some...)))
		}
	}
	return errors.Join(found...)
}
