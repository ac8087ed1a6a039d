package kubelet

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// handlers are the runtime's handlers with what pods can have of each, as a node's status has them. No pod has a user
// namespace, whatever the runtime can: the kubelet refuses those that want one. Their order is that of their names:
// runtimes keep none. Nil says that the runtime tells of none.
func handlers(runtime *criapi.StatusResponse) []corev1.NodeRuntimeHandler {
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

// features is what the runtime can do with any handler. Nil says that it does not tell.
func features(runtime *criapi.StatusResponse) *corev1.NodeFeatures {
	if runtime.GetFeatures() == nil {
		return nil
	}
	groups := runtime.GetFeatures().GetSupplementalGroupsPolicy()
	return &corev1.NodeFeatures{SupplementalGroupsPolicy: &groups}
}
