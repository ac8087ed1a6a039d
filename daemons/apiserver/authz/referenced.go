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

// referenced is the Secrets that the Ingresses and Gateways of our controllers refer to. The set is made anew when one of the
// objects that it follows from has changed; in between, a decision is a look into it.
type referenced struct {
	objects interface {
		Get(resource schema.GroupResource, namespace, name string) (runtime.Object, bool)
		List(resource schema.GroupResource, namespace string) []runtime.Object
		Revision(resource schema.GroupResource) int64
	}
	current atomic.Pointer[references]
	mu      sync.Mutex // one maker of the set at a time
}

type references struct {
	revisions [5]int64
	secrets   map[types.NamespacedName]struct{}
}

func (f *referenced) has(namespace, name string) bool {
	_, ok := f.set().secrets[types.NamespacedName{Namespace: namespace, Name: name}]
	return ok
}

func (f *referenced) revisions() (all [5]int64) {
	for i, gr := range []schema.GroupResource{ingressesGR, ingressClassesGR, gatewaysGR, gatewayClassesGR, grantsGR} {
		all[i] = f.objects.Revision(gr)
	}
	return all
}

func (f *referenced) set() *references {
	if s := f.current.Load(); s != nil && s.revisions == f.revisions() {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// The revisions are read before the objects: what changes meanwhile is seen next time.
	revisions := f.revisions()
	if s := f.current.Load(); s != nil && s.revisions == revisions {
		return s
	}
	s := &references{revisions: revisions, secrets: map[types.NamespacedName]struct{}{}}
	for _, obj := range f.objects.List(ingressesGR, "") {
		in, ok := obj.(*networkingv1.Ingress)
		if !ok || len(in.Spec.TLS) == 0 || !f.ours(in) {
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

// ours reports whether an Ingress may be for the cluster's ingress proxy: its class says so, or it has none and may be given
// the default one.
func (f *referenced) ours(in *networkingv1.Ingress) bool {
	name := in.Annotations[networkingv1beta1Class]
	if in.Spec.IngressClassName != nil {
		name = *in.Spec.IngressClassName
	}
	if name == "" {
		for _, obj := range f.objects.List(ingressClassesGR, "") {
			if class, ok := obj.(*networkingv1.IngressClass); ok && class.Spec.Controller == gateway.IngressController && class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
				return true
			}
		}
		return false
	}
	obj, ok := f.objects.Get(ingressClassesGR, "", name)
	class, is := obj.(*networkingv1.IngressClass)
	return ok && is && class.Spec.Controller == gateway.IngressController
}

// networkingv1beta1Class is the annotation by which a class was named before there was a field.
const networkingv1beta1Class = "kubernetes.io/ingress.class"

// addGateways adds the certificates of the listeners of our Gateways. Those of other namespaces count where a ReferenceGrant
// permits them.
func (f *referenced) addGateways(s *references) {
	for _, obj := range f.objects.List(gatewaysGR, "") {
		g, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		class, _, _ := unstructured.NestedString(g.Object, "spec", "gatewayClassName")
		if !f.ourClass(class) {
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
				if text("group", "") == "" && text("kind", "Secret") == "Secret" && (key.Namespace == g.GetNamespace() || f.permitted(g.GetNamespace(), key)) {
					s.secrets[key] = struct{}{}
				}
			}
		}
	}
}

func (f *referenced) ourClass(name string) bool {
	obj, ok := f.objects.Get(gatewayClassesGR, "", name)
	class, is := obj.(*unstructured.Unstructured)
	if !ok || !is {
		return false
	}
	controller, _, _ := unstructured.NestedString(class.Object, "spec", "controllerName")
	return controller == gateway.Controller
}

// permitted reports whether a ReferenceGrant lets Gateways of a namespace refer to a Secret of another.
func (f *referenced) permitted(from string, secret types.NamespacedName) bool {
	matches := func(entry any, want map[string]string) bool {
		m, _ := entry.(map[string]any)
		for field, value := range want {
			if is, _ := m[field].(string); is != value {
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
				if matches(target, map[string]string{"group": "", "kind": "Secret"}) && (!named || name == "" || name == secret.Name) {
					return true
				}
			}
		}
	}
	return false
}
