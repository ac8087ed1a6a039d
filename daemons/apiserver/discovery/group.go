package discovery

import (
	apidiscovery "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/kinds"
)

type group struct {
	name     string
	versions []*version
}

type version struct {
	name       string
	plain      []metav1.APIResource
	aggregated []apidiscovery.APIResourceDiscovery
	isStale    bool
}

// defaultVerbs lists the verbs of kinds that declare none, in upstream's order.
var defaultVerbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// subresourceInfo is a subresource as listed: its kind and its verbs.
type subresourceInfo struct {
	kind  schema.GroupVersionKind // empty if it is the resource's kind
	verbs metav1.Verbs
}

var subresources = map[string]subresourceInfo{
	"binding":             {corev1.SchemeGroupVersion.WithKind("Binding"), metav1.Verbs{"create"}},
	"eviction":            {policyv1.SchemeGroupVersion.WithKind("Eviction"), metav1.Verbs{"create"}},
	"token":               {authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), metav1.Verbs{"create"}},
	"log":                 {verbs: metav1.Verbs{"get"}},
	"exec":                {corev1.SchemeGroupVersion.WithKind("PodExecOptions"), metav1.Verbs{"create", "get"}},
	"attach":              {corev1.SchemeGroupVersion.WithKind("PodAttachOptions"), metav1.Verbs{"create", "get"}},
	"portforward":         {corev1.SchemeGroupVersion.WithKind("PodPortForwardOptions"), metav1.Verbs{"create", "get"}},
	"proxy":               {verbs: metav1.Verbs{"create", "delete", "get", "patch", "update"}},
	"approval":            {verbs: metav1.Verbs{"get", "patch", "update"}},
	"finalize":            {verbs: metav1.Verbs{"update"}},
	"ephemeralcontainers": {verbs: metav1.Verbs{"get", "patch", "update"}},
	"resize":              {verbs: metav1.Verbs{"get", "patch", "update"}},
	"status":              {verbs: metav1.Verbs{"get", "patch", "update"}},
	"scale":               {autoscalingv1.SchemeGroupVersion.WithKind("Scale"), metav1.Verbs{"get", "patch", "update"}},
}

func (v *version) add(gvk schema.GroupVersionKind, resource string, k *kinds.Kind) {
	verbs := metav1.Verbs(k.Verbs)
	switch {
	case k.Virtual && verbs == nil:
		verbs = metav1.Verbs{"create"}
	case verbs == nil:
		verbs = defaultVerbs
	}
	v.plain = append(v.plain, metav1.APIResource{
		Name: resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: gvk.Kind,
		Verbs: verbs, ShortNames: k.ShortNames, Categories: k.Categories,
	})
	scope := apidiscovery.ScopeCluster
	if k.Namespaced {
		scope = apidiscovery.ScopeNamespace
	}
	kind := metav1.GroupVersionKind(gvk)
	whole := apidiscovery.APIResourceDiscovery{
		Resource: resource, ResponseKind: &kind, Scope: scope, SingularResource: k.Singular,
		Verbs: verbs, ShortNames: k.ShortNames, Categories: k.Categories,
	}
	var names []string
	names = append(names, k.Subresources...)
	if k.Scale != nil {
		names = append(names, "scale")
	}
	if k.Status != nil {
		names = append(names, "status")
	}
	for _, name := range names {
		sub, ok := subresources[name]
		if !ok {
			continue
		}
		shown := metav1.APIResource{
			Name:       resource + "/" + name,
			Namespaced: k.Namespaced,
			Kind:       gvk.Kind,
			Verbs:      sub.verbs,
		}
		kind := metav1.GroupVersionKind(gvk)
		if !sub.kind.Empty() {
			kind = metav1.GroupVersionKind(sub.kind)
			shown.Kind = kind.Kind
			if sub.kind.GroupVersion() != gvk.GroupVersion() {
				shown.Group, shown.Version = kind.Group, kind.Version
			}
		}
		v.plain = append(v.plain, shown)
		whole.Subresources = append(whole.Subresources,
			apidiscovery.APISubresourceDiscovery{Subresource: name, ResponseKind: &kind, Verbs: sub.verbs})
	}
	v.aggregated = append(v.aggregated, whole)
}

func (g *group) plain() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: schema.GroupVersion{Group: g.name, Version: v.name}.String(), Version: v.name,
		})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func (g *group) aggregated() apidiscovery.APIGroupDiscovery {
	out := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		fresh := apidiscovery.DiscoveryFreshnessCurrent
		if v.isStale {
			fresh = apidiscovery.DiscoveryFreshnessStale
		}
		out.Versions = append(out.Versions,
			apidiscovery.APIVersionDiscovery{Version: v.name, Resources: v.aggregated, Freshness: fresh})
	}
	return out
}
