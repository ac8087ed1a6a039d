package nodeagent

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeHandlers returns the runtime's handlers and their features for the node status, sorted by name because
// runtimes do not keep an order. It returns nil if the runtime reports no handlers. User namespaces are always reported
// as unsupported, because the kubelet rejects pods that want one.
func runtimeHandlers(runtime *criapi.StatusResponse) []corev1.NodeRuntimeHandler {
	var list []corev1.NodeRuntimeHandler
	for _, h := range runtime.GetRuntimeHandlers() {
		recursive, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), false
		list = append(
			list,
			corev1.NodeRuntimeHandler{
				Name: h.GetName(),
				Features: &corev1.NodeRuntimeHandlerFeatures{
					RecursiveReadOnlyMounts: &recursive,
					UserNamespaces:          &users,
				},
			},
		)
	}
	slices.SortFunc(list, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// runtimeFeatures returns the features of the runtime that do not depend on a handler. It returns nil if the runtime
// does not report features.
func runtimeFeatures(runtime *criapi.StatusResponse) *corev1.NodeFeatures {
	if runtime.GetFeatures() == nil {
		return nil
	}
	groups := runtime.GetFeatures().GetSupplementalGroupsPolicy()
	return &corev1.NodeFeatures{SupplementalGroupsPolicy: &groups}
}
