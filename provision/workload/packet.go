package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/provision/packet"
)

// packetPage is the number of objects in one page of a list.
const packetPage = 500

// Packets reads the API objects that affect packets. A kind that cannot be listed is an error: an unknown policy must
// not count as absent.
func (l *connection) Packets(ctx context.Context) (*packet.Cluster, error) {
	c := &packet.Cluster{}
	for _, err := range []error{
		listKind(ctx, l, corev1.SchemeGroupVersion.WithResource("pods"), &c.Pods),
		listKind(ctx, l, corev1.SchemeGroupVersion.WithResource("nodes"), &c.Nodes),
		listKind(ctx, l, corev1.SchemeGroupVersion.WithResource("namespaces"), &c.Namespaces),
		listKind(ctx, l, corev1.SchemeGroupVersion.WithResource("services"), &c.Services),
		listKind(ctx, l, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), &c.Slices),
		listKind(ctx, l, networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), &c.Policies),
	} {
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// listKind reads all objects of a kind, page by page.
func listKind[T any](ctx context.Context, l *connection, kind schema.GroupVersionResource, into *[]T) error {
	options := metav1.ListOptions{Limit: packetPage}
	for {
		page, err := l.dynamic.Resource(kind).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		for _, item := range page.Items {
			var o T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &o); err != nil {
				return fmt.Errorf("read %s of %s: %w", item.GetName(), kind.Resource, err)
			}
			*into = append(*into, o)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
