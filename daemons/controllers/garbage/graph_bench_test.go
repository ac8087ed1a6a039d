package garbage

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkGraphMemory measures the memory of the graph for 50,000 pods with owners, without the cache that holds them.
func BenchmarkGraphMemory(b *testing.B) {
	const n = 50000
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		owner := fmt.Sprintf("set-%d", i/100)
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default",
				Name:      fmt.Sprintf("%s-%05d", owner, i),
				UID:       types.UID(fmt.Sprintf("%036d", i)),
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner)},
				},
			},
		}
	}
	for b.Loop() {
		g, of := newGraph(), &served{kind: "Pod"}
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, p := range pods {
			g.put(object{of, metaOf(p)})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "live-B/object")
		runtime.KeepAlive(g)
	}
	runtime.KeepAlive(pods)
}
