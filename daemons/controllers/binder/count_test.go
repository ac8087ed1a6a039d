package binder

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestVolumesAndClaimsAreCounted(t *testing.T) {
	volumes, claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		nil)
	add := func(to cache.Indexer, obj any) {
		t.Helper()
		if err := to.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	volume := func(name string, phase corev1.PersistentVolumePhase, source corev1.PersistentVolumeSource) {
		add(
			volumes,
			&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Status:     corev1.PersistentVolumeStatus{Phase: phase},
				Spec:       corev1.PersistentVolumeSpec{StorageClassName: "fast", PersistentVolumeSource: source},
			},
		)
	}
	volume("a", corev1.VolumeBound, corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}})
	volume("b", corev1.VolumeBound, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}})
	volume("c", corev1.VolumeReleased, corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}})
	for name, phase := range map[string]corev1.PersistentVolumeClaimPhase{"x": corev1.ClaimBound,
		"y": corev1.ClaimPending, "z": corev1.ClaimLost} {
		add(
			claims,
			&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
				Status:     corev1.PersistentVolumeClaimStatus{Phase: phase},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName:          ptr("fast"),
					VolumeAttributesClassName: ptr("gold"),
				},
			},
		)
	}
	const want = `
# HELP pv_collector_bound_pv_count Volumes that are bound.
# TYPE pv_collector_bound_pv_count gauge
pv_collector_bound_pv_count{storage_class="fast"} 2
# HELP pv_collector_bound_pvc_count Claims that are bound.
# TYPE pv_collector_bound_pvc_count gauge
pv_collector_bound_pvc_count{namespace="n",storage_class="fast",volume_attributes_class="gold"} 1
# HELP pv_collector_total_pv_count Volumes.
# TYPE pv_collector_total_pv_count gauge
pv_collector_total_pv_count{plugin_name="kubernetes.io/csi:d",volume_mode="Filesystem"} 1
pv_collector_total_pv_count{plugin_name="kubernetes.io/local-volume",volume_mode="Filesystem"} 2
# HELP pv_collector_unbound_pv_count Volumes that are not bound.
# TYPE pv_collector_unbound_pv_count gauge
pv_collector_unbound_pv_count{storage_class="fast"} 1
# HELP pv_collector_unbound_pvc_count Claims that are not bound.
# TYPE pv_collector_unbound_pvc_count gauge
pv_collector_unbound_pvc_count{namespace="n",storage_class="fast",volume_attributes_class="gold"} 2
`
	if err := testutil.CollectAndCompare(volumeCount{corelisters.NewPersistentVolumeLister(volumes),
		corelisters.NewPersistentVolumeClaimLister(claims)}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
