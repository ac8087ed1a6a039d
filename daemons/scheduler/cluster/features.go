package cluster

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	known "k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// podInfoPool avoids an allocation for each pod.
var podInfoPool = sync.Pool{New: func() any { return &types.PodInfo{} }}

// requiredFeatures returns the kubelet features that a pod needs and that a node may lack, by upstream's names.
func requiredFeatures(pod *corev1.Pod) (names []string) {
	info := podInfoPool.Get().(*types.PodInfo)
	info.Spec = &pod.Spec
	for _, f := range known.AllFeatures {
		if f.MaxVersion() == nil &&
			f.InferForScheduling(info) { // all kubelets after a feature's last version have it
			names = append(names, f.Name())
		}
	}
	info.Spec = nil
	podInfoPool.Put(info)
	return names
}
