package authz

import (
	"sync"
	"sync/atomic"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api/gateway"
)

var (
	secretsGR        = schema.GroupResource{Resource: "secrets"}
	ingressesGR      = schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingresses"}
	ingressClassesGR = schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
	gatewaysGR       = schema.GroupResource{Group: gatewayGroup, Resource: "gateways"}
	gatewayClassesGR = schema.GroupResource{Group: gatewayGroup, Resource: "gatewayclasses"}
	grantsGR         = schema.GroupResource{Group: gatewayGroup, Resource: "referencegrants"}
)

// referencedSecrets caches the Secrets that Ingresses and Gateways of our controllers refer to. The set is rebuilt when
// the revision of a resource it depends on changes. Otherwise a decision is one map lookup.
type referencedSecrets struct {
	objects interface {
		Get(resource schema.GroupResource, namespace, name string) (runtime.Object, bool)
		List(resource schema.GroupResource, namespace string) []runtime.Object
		Revision(resource schema.GroupResource) int64
	}
	current atomic.Pointer[references]
	mu      sync.Mutex // serializes rebuilding current
}

type references struct {
	revisions [5]int64
	secrets   map[types.NamespacedName]struct{}
}

func (f *referencedSecrets) has(namespace, name string) bool {
	_, ok := f.currentReferences().secrets[types.NamespacedName{Namespace: namespace, Name: name}]
	return ok
}

func (f *referencedSecrets) revisions() (all [5]int64) {
	for i, gr := range []schema.GroupResource{ingressesGR, ingressClassesGR, gatewaysGR, gatewayClassesGR, grantsGR} {
		all[i] = f.objects.Revision(gr)
	}
	return all
}

func (f *referencedSecrets) currentReferences() *references {
	if s := f.current.Load(); s != nil && s.revisions == f.revisions() {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// Read the revisions before the objects, so that a change in between causes another rebuild.
	revisions := f.revisions()
	if s := f.current.Load(); s != nil && s.revisions == revisions {
		return s
	}
	s := &references{revisions: revisions, secrets: map[types.NamespacedName]struct{}{}}
	ours := map[string]bool{} // by class
	for _, obj := range f.objects.List(ingressesGR, "") {
		in, ok := obj.(*networkingv1.Ingress)
		if !ok || len(in.Spec.TLS) == 0 {
			continue
		}
		class := className(in)
		isOurs, found := ours[class]
		if !found {
			isOurs = f.isOurIngressClass(class)
			ours[class] = isOurs
		}
		if !isOurs {
			continue
		}
		for _, t := range in.Spec.TLS {
			s.secrets[types.NamespacedName{Namespace: in.Namespace, Name: t.SecretName}] = struct{}{}
		}
	}
	f.addGateways(s)
	f.current.Store(s)
	return s
}

// isOurIngress reports whether an Ingress can be for the cluster's ingress proxy.
func (f *referencedSecrets) isOurIngress(in *networkingv1.Ingress) bool {
	return f.isOurIngressClass(className(in))
}

// className returns the name of the class of an Ingress, "" if it has none.
func className(in *networkingv1.Ingress) string {
	if in.Spec.IngressClassName != nil {
		return *in.Spec.IngressClassName
	}
	return in.Annotations[ingressClassAnnotation]
}

// isOurIngressClass reports whether Ingresses of a class can be for the cluster's ingress proxy. For the empty name it
// reports whether a default class of the proxy exists.
func (f *referencedSecrets) isOurIngressClass(name string) bool {
	if name == "" {
		for _, obj := range f.objects.List(ingressClassesGR, "") {
			class, ok := obj.(*networkingv1.IngressClass)
			if ok && class.Spec.Controller == gateway.IngressController &&
				class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
				return true
			}
		}
		return false
	}
	obj, ok := f.objects.Get(ingressClassesGR, "", name)
	class, isType := obj.(*networkingv1.IngressClass)
	return ok && isType && class.Spec.Controller == gateway.IngressController
}

// ingressClassAnnotation is the annotation that named the class before spec.ingressClassName existed.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// addGateways adds the certificates of listeners of our Gateways. Certificates in other namespaces are added only if a
// ReferenceGrant permits the reference.
func (f *referencedSecrets) addGateways(s *references) {
	for _, obj := range f.objects.List(gatewaysGR, "") {
		g, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		class, _, _ := unstructured.NestedString(g.Object, "spec", "gatewayClassName")
		if !f.isOurGatewayClass(class) {
			continue
		}
		listeners, _, _ := unstructured.NestedSlice(g.Object, "spec", "listeners")
		for _, l := range listeners {
			listener, _ := l.(map[string]any)
			refs, _, _ := unstructured.NestedSlice(listener, "tls", "certificateRefs")
			for _, r := range refs {
				ref, _ := r.(map[string]any)
				text := func(name, otherwise string) string {
					if v, ok := ref[name].(string); ok {
						return v
					}
					return otherwise
				}
				key := types.NamespacedName{Namespace: text("namespace", g.GetNamespace()), Name: text("name", "")}
				if text("group", "") == "" && text("kind", "Secret") == "Secret" &&
					(key.Namespace == g.GetNamespace() || f.isPermitted(g.GetNamespace(), key)) {
					s.secrets[key] = struct{}{}
				}
			}
		}
	}
}

// isImplementedByProxy reports whether the cluster's ingress proxy implements an object of the Gateway API: by its
// class or, for a route, by its parent Gateways. A route that left our Gateways still has a status entry of the proxy,
// which the proxy must be able to remove.
func (f *referencedSecrets) isImplementedByProxy(gr schema.GroupResource, o *unstructured.Unstructured) bool {
	switch gr {
	case gatewayClassesGR:
		return f.isOurGatewayClass(o.GetName())
	case gatewaysGR:
		class, _, _ := unstructured.NestedString(o.Object, "spec", "gatewayClassName")
		return f.isOurGatewayClass(class)
	}
	statuses, _, _ := unstructured.NestedSlice(o.Object, "status", "parents")
	for _, entry := range statuses {
		if m, ok := entry.(map[string]any); ok && m["controllerName"] == gateway.Controller {
			return true
		}
	}
	parents, _, _ := unstructured.NestedSlice(o.Object, "spec", "parentRefs")
	for _, entry := range parents {
		ref, _ := entry.(map[string]any)
		name, _ := ref["name"].(string)
		namespace, ok := ref["namespace"].(string)
		if !ok {
			namespace = o.GetNamespace()
		}
		obj, _ := f.objects.Get(gatewaysGR, namespace, name)
		if parent, isType := obj.(*unstructured.Unstructured); isType && f.isImplementedByProxy(gatewaysGR, parent) {
			return true
		}
	}
	return false
}

func (f *referencedSecrets) isOurGatewayClass(name string) bool {
	obj, ok := f.objects.Get(gatewayClassesGR, "", name)
	class, isType := obj.(*unstructured.Unstructured)
	if !ok || !isType {
		return false
	}
	controller, _, _ := unstructured.NestedString(class.Object, "spec", "controllerName")
	return controller == gateway.Controller
}

// isPermitted reports whether a ReferenceGrant lets Gateways in a namespace refer to a Secret in another namespace.
func (f *referencedSecrets) isPermitted(from string, secret types.NamespacedName) bool {
	matches := func(entry any, want map[string]string) bool {
		m, _ := entry.(map[string]any)
		for field, value := range want {
			if current, _ := m[field].(string); current != value {
				return false
			}
		}
		return m != nil
	}
	for _, obj := range f.objects.List(grantsGR, secret.Namespace) {
		grant, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		sources, _, _ := unstructured.NestedSlice(grant.Object, "spec", "from")
		targets, _, _ := unstructured.NestedSlice(grant.Object, "spec", "to")
		for _, source := range sources {
			if !matches(source, map[string]string{"group": gatewayGroup, "kind": "Gateway", "namespace": from}) {
				continue
			}
			for _, target := range targets {
				m, _ := target.(map[string]any)
				name, named := m["name"].(string)
				if matches(target, map[string]string{"group": "", "kind": "Secret"}) &&
					(!named || name == "" || name == secret.Name) {
					return true
				}
			}
		}
	}
	return false
}
