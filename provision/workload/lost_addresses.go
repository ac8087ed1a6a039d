package workload

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
)

var services = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// maxNamedServices is the maximum number of services that are named.
const maxNamedServices = 5

// lostAddresses describes the services that lose their addresses because of a change of the pools, or returns "".
func (l *Live) lostAddresses(ctx context.Context, before, after *unstructured.Unstructured) string {
	old, err := poolsOf(before)
	if err != nil || len(old) == 0 {
		return "" // the daemons use older pools, which are unknown here
	}
	updated, err := poolsOf(after)
	if err != nil {
		return ""
	}
	list, err := l.dynamic.Resource(services).List(ctx, metav1.ListOptions{FieldSelector: "spec.type=LoadBalancer"})
	if err != nil {
		return "which services lose their addresses by that is not known: " + err.Error()
	}
	contains := func(pools []daemons.Pool, a netip.Addr) bool {
		return slices.ContainsFunc(pools, func(p daemons.Pool) bool { return p.Contains(a) })
	}
	var names []string
	for _, s := range list.Items {
		ingress, _, _ := unstructured.NestedSlice(s.Object, "status", "loadBalancer", "ingress")
		for _, at := range ingress {
			m, _ := at.(map[string]any)
			text, _ := m["ip"].(string)
			if a, err := netip.ParseAddr(text); err == nil && contains(old, a) && !contains(updated, a) {
				names = append(names, fmt.Sprintf("%s (%s)", fullName(s.GetNamespace(), s.GetName()), a))
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	some := strings.Join(names[:min(len(names), maxNamedServices)], ", ")
	if more := len(names) - maxNamedServices; more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	return "services lose their addresses: " + some
}

// declaresPools reports whether the configuration itself declares the pools' ConfigMap.
func declaresPools(o config.Object) bool {
	u := unstructured.Unstructured{Object: o.Content}
	return isPools(u.GetKind(), u.GetNamespace(), u.GetName())
}

// isPools reports whether an object is the ConfigMap of the address pools.
func isPools(kind, namespace, name string) bool {
	return kind == "ConfigMap" && namespace == metav1.NamespaceSystem && name == daemons.PoolsName
}

// poolsOf returns the pools in a ConfigMap. If it returns an error, daemons ignore the ConfigMap.
func poolsOf(o *unstructured.Unstructured) ([]daemons.Pool, error) {
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	return daemons.ReadPools(data, o.GetAnnotations())
}
