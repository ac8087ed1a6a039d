package discovery

import (
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ExternalVersion is a group version that another server serves, with the resources that it lists. Stale means that
// they may have changed since.
type ExternalVersion struct {
	GroupVersion schema.GroupVersion
	Resources    []metav1.APIResource
	Stale        bool
}

// aggregatedResources returns the aggregated form of a list of resources.
func aggregatedResources(o ExternalVersion) []apidiscovery.APIResourceDiscovery {
	var out []apidiscovery.APIResourceDiscovery
	at := map[string]int{}
	kind := func(r metav1.APIResource) *metav1.GroupVersionKind {
		k := metav1.GroupVersionKind{Group: o.GroupVersion.Group, Version: o.GroupVersion.Version, Kind: r.Kind}
		if r.Version != "" {
			k.Group, k.Version = r.Group, r.Version
		}
		return &k
	}
	for _, r := range o.Resources {
		name, sub, isSub := strings.Cut(r.Name, "/")
		if !isSub {
			scope := apidiscovery.ScopeCluster
			if r.Namespaced {
				scope = apidiscovery.ScopeNamespace
			}
			at[name] = len(out)
			out = append(out, apidiscovery.APIResourceDiscovery{
				Resource: r.Name, ResponseKind: kind(r), Scope: scope, SingularResource: r.SingularName,
				Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
			})
		} else if i, ok := at[name]; ok {
			out[i].Subresources = append(out[i].Subresources,
				apidiscovery.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind(r), Verbs: r.Verbs})
		}
	}
	return out
}
