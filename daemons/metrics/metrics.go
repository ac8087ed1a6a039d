// Package metrics serves metrics.k8s.io: what nodes and pods use of CPU and memory, as their kubelets count it.
package metrics
