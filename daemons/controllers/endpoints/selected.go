package endpoints

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// selectorIndex finds services by one pair of their selectors, so that a pod's event costs what the pod has labels, not
// what its namespace has services.
const selectorIndex = "selector"

// indexSelectors adds the index to the services' informer, which must not have started.
func indexSelectors(services cache.SharedIndexInformer) cache.Indexer {
	// Adding it again, for the other controller of endpoints, is refused and harmless.
	_ = services.AddIndexers(cache.Indexers{selectorIndex: byFirstPair})
	return services.GetIndexer()
}

// byFirstPair is where a service is found: at the pair of its selector whose key is first by name. A pod that it
// selects has that one, too.
func byFirstPair(obj any) ([]string, error) {
	service, ok := obj.(*corev1.Service)
	if !ok || len(service.Spec.Selector) == 0 {
		return nil, nil
	}
	key := slices.Min(slices.Collect(maps.Keys(service.Spec.Selector)))
	return []string{pair(service.Namespace, key, service.Spec.Selector[key])}, nil
}

func pair(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

// selecting calls f with every service whose selector matches labels in a namespace, each once.
func selecting(services cache.Indexer, namespace string, labels map[string]string, f func(*corev1.Service)) {
	for key, value := range labels {
		found, err := services.ByIndex(selectorIndex, pair(namespace, key, value))
		if err != nil {
			return
		}
		for _, obj := range found {
			if service := obj.(*corev1.Service); selects(service.Spec.Selector, labels) {
				f(service)
			}
		}
	}
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if is, has := labels[key]; !has || is != value {
			return false
		}
	}
	return true
}
