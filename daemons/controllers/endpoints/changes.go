package endpoints

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes"
)

// Changes holds the slices to write.
type Changes struct {
	Create, Update []*discoveryv1.EndpointSlice
	Delete         []*discoveryv1.EndpointSlice
}

// Write writes the changes. It records under key in expect which creations and deletions the cache has yet to show. A
// deletion is refused if the slice has changed since the decision. Deletions come last, so that no endpoint is missing
// in between.
func (c Changes) Write(ctx context.Context, client kubernetes.Interface, expect *loop.Expectations, key string) error {
	for _, slice := range c.Update {
		if _, err := client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice,
			metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
	}
	for _, slice := range c.Create {
		expect.Expect(key, 1)
		if _, err := client.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice,
			metav1.CreateOptions{}); err != nil {
			expect.Created(key)
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return nil
			}
			return fmt.Errorf("create an EndpointSlice of %s: %w", key, err)
		}
	}
	for _, slice := range c.Delete {
		err := client.DiscoveryV1().EndpointSlices(slice.Namespace).Delete(ctx, slice.Name, loop.IfUnchanged(slice))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
	}
	return nil
}

// Replace turns a slice to create and a slice to delete into an update. Both must have the same immutable fields: the
// address type and the owner. A slice of a former owner is deleted together with that owner.
func (c *Changes) Replace() {
	c.Create = slices.DeleteFunc(c.Create, func(created *discoveryv1.EndpointSlice) bool {
		at := slices.IndexFunc(c.Delete, func(slice *discoveryv1.EndpointSlice) bool {
			return slice.AddressType == created.AddressType && controllerUID(slice) == controllerUID(created)
		})
		if at < 0 {
			return false
		}
		bare := *c.Delete[at]
		bare.Endpoints, bare.Ports = nil, nil
		updated := bare.DeepCopy()
		updated.Labels, updated.Ports, updated.Endpoints = created.Labels, created.Ports, created.Endpoints
		if created.Annotations != nil {
			updated.Annotations = created.Annotations
		}
		c.Update, c.Delete = append(c.Update, updated), slices.Delete(c.Delete, at, at+1)
		return true
	})
}

func controllerUID(slice *discoveryv1.EndpointSlice) types.UID {
	if ref := metav1.GetControllerOfNoCopy(slice); ref != nil {
		return ref.UID
	}
	return ""
}

// CountMoved counts the endpoints that are added to, changed in and removed from all slices, by their keys. An endpoint
// that moves from one slice to another is neither added nor removed. If changed is nil, changed endpoints are not
// counted.
func (c Changes) CountMoved(
	existing []*discoveryv1.EndpointSlice,
	key func(discoveryv1.Endpoint) string,
	changed func(a, b discoveryv1.Endpoint) bool,
) (added, updated, removed int) {
	type endpoint struct {
		kind discoveryv1.AddressType
		key  string
	}
	present := make(map[string]*discoveryv1.EndpointSlice, len(existing))
	for _, s := range existing {
		present[s.Name] = s
	}
	before := map[endpoint]discoveryv1.Endpoint{}
	for _, list := range [][]*discoveryv1.EndpointSlice{c.Update, c.Delete} {
		for _, s := range list {
			if old := present[s.Name]; old != nil {
				for _, e := range old.Endpoints {
					before[endpoint{old.AddressType, key(e)}] = e
				}
			}
		}
	}
	for _, list := range [][]*discoveryv1.EndpointSlice{c.Create, c.Update} {
		for _, s := range list {
			for _, e := range s.Endpoints {
				at := endpoint{s.AddressType, key(e)}
				switch old, ok := before[at]; {
				case !ok:
					added++
				case changed != nil && changed(old, e):
					updated++
				}
				delete(before, at)
			}
		}
	}
	return added, updated, len(before)
}
