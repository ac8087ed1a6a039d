package endpoints

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// selectorIndex finds services by one pair of their selector. The cost of a pod's event then depends on the pod's
// labels, not on the number of services in its namespace.
const selectorIndex = "selector"

// indexSelectors adds the index to the services' informer, which must not be started yet.
func indexSelectors(services cache.SharedIndexInformer) cache.Indexer {
	// Both controllers of this package add it. The second attempt returns an error and is harmless.
	_ = services.AddIndexers(cache.Indexers{selectorIndex: byFirstPair})
	return services.GetIndexer()
}

// byFirstPair indexes a service under the pair of its selector whose key sorts first. Every pod that the service
// selects has that pair too.
func byFirstPair(obj any) ([]string, error) {
	service, ok := obj.(*corev1.Service)
	if !ok || len(service.Spec.Selector) == 0 {
		return nil, nil
	}
	key := slices.Min(slices.Collect(maps.Keys(service.Spec.Selector)))
	return []string{pairKey(service.Namespace, key, service.Spec.Selector[key])}, nil
}

func pairKey(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// forEachSelecting calls f once for every service in the namespace whose selector matches labels.
func forEachSelecting(services cache.Indexer, namespace string, labels map[string]string, f func(*corev1.Service)) {
	for key, value := range labels {
		found, err := services.ByIndex(selectorIndex, pairKey(namespace, key, value))
		if err != nil {
			return
		}
		for _, obj := range found {
			if service := obj.(*corev1.Service); isSelected(service.Spec.Selector, labels) {
				f(service)
			}
		}
	}
}

func isSelected(selector, labels map[string]string) bool {
	for key, value := range selector {
		if current, ok := labels[key]; !ok || current != value {
			return false
		}
	}
	return true
}
