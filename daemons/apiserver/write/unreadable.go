package write

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/match"
)

// An object that is stored but cannot be read is not treated as missing. A request for it fails with the reason, and so
// does a list that might include it. Writes whose admission depends on it are refused.

var (
	definitionsGR = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	apiServicesGR = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
)

// readRequirement states that the admission of some writes needs all objects of a resource, or those of the write's
// namespace, to be readable. Otherwise admission would allow writes that these objects forbid.
type readRequirement struct {
	resource schema.GroupResource
	key      func(a *api.Admission) string // the key or prefix for cache.Resource.Unread; nil means all objects
	applies  func(a *api.Admission) bool
}

var readRequirements = func() []readRequirement {
	var list []readRequirement
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		list = append(
			list,
			readRequirement{
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
	isOf := func(a *api.Admission, resources ...string) bool {
		return slices.Contains(resources, a.Resource.GroupResource().String())
	}
	creates := func(resources ...string) func(*api.Admission) bool {
		return func(a *api.Admission) bool {
			return a.Operation == "CREATE" && a.Subresource == "" && isOf(a, resources...)
		}
	}
	finalizes := func(a *api.Admission) bool { return isOf(a, "namespaces") && a.Subresource == "finalize" }
	return append(
		list,
		readRequirement{
			schema.GroupResource{Resource: "namespaces"},
			func(a *api.Admission) string { return a.Namespace },
			namespaced,
		},
		readRequirement{schema.GroupResource{Resource: "resourcequotas"}, inside, namespaced},
		readRequirement{schema.GroupResource{Resource: "limitranges"}, inside, func(a *api.Admission) bool {
			return namespaced(a) && isOf(a, "pods", "persistentvolumeclaims")
		}},
		readRequirement{
			schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"},
			nil,
			creates("pods", "priorityclasses.scheduling.k8s.io"),
		},
		readRequirement{
			schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"},
			nil,
			creates("persistentvolumeclaims"),
		},
		readRequirement{
			schema.GroupResource{Group: "networking.k8s.io", Resource: "ingressclasses"},
			nil,
			creates("ingresses.networking.k8s.io"),
		},
		// Finalizing a namespace deletes it. It may still hold objects of kinds that are unknown while this object is
		// unreadable.
		readRequirement{definitionsGR, nil, finalizes},
		readRequirement{apiServicesGR, nil, finalizes},
	)
}()

// rejectIfUnreadable refuses a write whose admission depends on objects that cannot be read.
func rejectIfUnreadable(c *cache.Cache, a *api.Admission) error {
	if a.Internal {
		return nil // the server's own writes, which skip webhooks as well
	}
	for i := range readRequirements {
		r := &readRequirements[i]
		resource := c.Resource(r.resource)
		if resource == nil || resource.ReadError("") == nil || !r.applies(a) {
			continue
		}
		key := ""
		if r.key != nil {
			key = r.key(a)
		}
		if err := resource.ReadError(key); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("the write depends on what cannot be read: %w", err))
		}
	}
	return rejectIfUncountable(c, a)
}

// rejectIfUncountable refuses a write in a namespace with quotas if the number of its objects is unknown.
func rejectIfUncountable(c *cache.Cache, a *api.Admission) error {
	if a.Operation == "DELETE" || a.Operation == "CONNECT" || a.Namespace == "" {
		return nil
	}
	resource := c.Resource(a.Resource.GroupResource())
	if resource == nil {
		return nil
	}
	err := resource.ReadError(a.Namespace + "/")
	if quotas := c.Resource(schema.GroupResource{Resource: "resourcequotas"}); err != nil &&
		quotas != nil &&
		quotas.Snapshot().Count(a.Namespace) > 0 {
		return apierrors.NewInternalError(fmt.Errorf("what the namespace's quotas count cannot be read: %w", err))
	}
	return nil
}
