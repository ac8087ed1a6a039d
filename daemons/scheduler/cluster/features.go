package cluster

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	known "k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// infos saves an allocation for each pod that is read.
var infos = sync.Pool{New: func() any { return &types.PodInfo{} }}

// features are the names of what a pod needs that a node's kubelet may lack, as Kubernetes' releases know it.
func features(pod *corev1.Pod) (names []string) {
	info := infos.Get().(*types.PodInfo)
	info.Spec = &pod.Spec
	for _, f := range known.AllFeatures {
		if f.MaxVersion() == nil &&
			f.InferForScheduling(info) { // a feature with a last version is in all kubelets after it
			names = append(names, f.Name())
		}
	}
	info.Spec = nil
	infos.Put(info)
	return names
}
