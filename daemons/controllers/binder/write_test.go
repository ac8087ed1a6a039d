package binder

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// referenceText returns how a claim and a volume refer to each other, by their fields and annotations.
func referenceText(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (claim, volume string) {
	marks := func(o metav1.ObjectMeta) (out string) {
		for _, key := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
			"volume.kubernetes.io/storage-provisioner",
			"volume.beta.kubernetes.io/storage-provisioner"} {
			if value, ok := o.Annotations[key]; ok {
				_, name, _ := strings.Cut(key, "/")
				out += " " + name + "=" + value
			}
		}
		return out
	}
	if c != nil {
		class := "none"
		if c.Spec.StorageClassName != nil {
			class = fmt.Sprintf("%q", *c.Spec.StorageClassName)
		}
		claim = fmt.Sprintf("%s %q class %s %s %v%s", c.Status.Phase, c.Spec.VolumeName, class,
			c.Status.Capacity.Storage(), c.Status.AccessModes, marks(c.ObjectMeta))
	}
	if v != nil {
		ref := "nobody"
		if r := v.Spec.ClaimRef; r != nil {
			ref = fmt.Sprintf("%s %s %s/%s %q", r.APIVersion, r.Kind, r.Namespace, r.Name, r.UID)
		}
		volume = fmt.Sprintf("%s %s%s", v.Status.Phase, ref, marks(v.ObjectMeta))
	}
	return claim, volume
}

// The test covers what is written to a claim and a volume when they are bound, in either order, and when the binding is
// lost.
func TestBindingWritesClaimAndVolume(t *testing.T) {
	type pv = corev1.PersistentVolume
	type pvc = corev1.PersistentVolumeClaim
	byController := func(v *pv) { v.Annotations = map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"} }
	names := func(v string) func(*pvc) { return func(c *pvc) { c.Spec.VolumeName = v } }
	bound := func(c *pvc) {
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		c.Status = corev1.PersistentVolumeClaimStatus{
			Phase:       corev1.ClaimBound,
			Capacity:    storageSize("6Gi"),
			AccessModes: c.Spec.AccessModes,
		}
	}
	kind := func(v *pv) { v.Spec.ClaimRef.APIVersion, v.Spec.ClaimRef.Kind = "v1", "PersistentVolumeClaim" }
	setPhase := func(phase corev1.PersistentVolumePhase) func(*pv) { return func(v *pv) { v.Status.Phase = phase } }
	class := func(name, provisioner string, marked bool) *storagev1.StorageClass {
		immediate := storagev1.VolumeBindingImmediate
		c := &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: name},
			Provisioner:       provisioner,
			VolumeBindingMode: &immediate,
		}
		if marked {
			c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	const ref = `v1 PersistentVolumeClaim d/c "u"`
	for name, c := range map[string]struct {
		claim                 *pvc
		volume                *pv
		class                 *storagev1.StorageClass
		wantClaim, wantVolume string
	}{
		"a match": {newClaim(), newVolume("a", "6Gi"), nil,
			`Bound "a" class "" 6Gi [ReadWriteOnce] bind-completed=yes bound-by-controller=yes`, "Bound " + ref + " bound-by-controller=yes"},
		"the claim names it": {newClaim(names("a")), newVolume("a", "6Gi"), nil,
			`Bound "a" class "" 6Gi [ReadWriteOnce] bind-completed=yes`, "Bound " + ref + " bound-by-controller=yes"},
		"it names the claim": {newClaim(), newVolume("a", "6Gi", reservedFor("c", "")), nil,
			`Bound "a" class "" 6Gi [ReadWriteOnce] bind-completed=yes bound-by-controller=yes`, "Bound " + ref},
		"each names the other": {newClaim(names("a")), newVolume("a", "6Gi", reservedFor("c", "")), nil, `Bound "a" class "" 6Gi [ReadWriteOnce] bind-completed=yes`, "Bound " + ref},
		"a provisioned one":    {newClaim(), newVolume("a", "6Gi", reservedFor("c", "u"), kind), nil, `Bound "a" class "" 6Gi [ReadWriteOnce] bind-completed=yes bound-by-controller=yes`, "Bound " + ref},
		"none that is free":    {newClaim(), newVolume("a", "6Gi", setPhase("Released")), nil, `Pending "" class "" 0 []`, "Available nobody"},
		"it is too small":      {newClaim(names("a")), newVolume("a", "1Gi"), nil, `Pending "a" class "" 0 []`, "Available nobody"},
		"a default class":      {newClaim(func(c *pvc) { c.Spec.StorageClassName = nil }), nil, class("k", "p.io/x", true), `Pending "" class "k" 0 []`, ""},
		"a provisioner": {newClaim(func(c *pvc) { c.Spec.StorageClassName = ptr("k") }), nil,
			class("k", "p.io/x", false),
			`Pending "" class "k" 0 [] storage-provisioner=p.io/x storage-provisioner=p.io/x`, ""},
		"its volume is gone": {newClaim(names("a"), bound), nil, nil, `Lost "a" class "" 0 [] bind-completed=yes`, ""},
		"another has its volume": {newClaim(names("a"), bound),
			newVolume("a", "6Gi", reservedFor("x", "x"), setPhase("Bound")), nil,
			`Lost "a" class "" 0 [] bind-completed=yes`, `Released   d/x "x"`},
		"its claim is gone": {nil, newVolume("a", "6Gi", reservedFor("c", "u"), kind, setPhase("Bound")), nil, "",
			"Released " +
				ref},
		"its claim has another": {newClaim(names("b"), bound),
			newVolume("a", "6Gi", reservedFor("c", "u"), kind, setPhase("Bound"), byController), nil,
			`Lost "b" class "" 0 [] bind-completed=yes`, "Available nobody"},
		"its claim has another, and it was reserved": {newClaim(names("b"), bound),
			newVolume("a", "6Gi", reservedFor("c", "u"), kind, setPhase("Bound")), nil,
			`Lost "b" class "" 0 [] bind-completed=yes`, `Available v1 PersistentVolumeClaim d/c ""`},
	} {
		gotClaim, gotVolume := syncObjects(t, name, c.claim, c.volume, c.class)
		if gotClaim != c.wantClaim || gotVolume != c.wantVolume {
			t.Errorf("%s:\nclaim  %s\nwant   %s\nvolume %s\nwant   %s", name, gotClaim, c.wantClaim, gotVolume,
				c.wantVolume)
		}
	}
}

// syncObjects syncs a claim and a volume, and returns what is written to them.
func syncObjects(t *testing.T, name string, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume,
	class *storagev1.StorageClass) (gotClaim, gotVolume string) {
	client := fake.NewClientset()
	factory := informers.New(client)
	put := func(o runtime.Object, into cache.SharedIndexInformer) {
		if err := client.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
		if err := into.GetIndexer().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	b := New(loop.Context{Client: client, Informers: factory, Events: record.NewFakeRecorder(10),
		Log: slog.New(slog.DiscardHandler)}).(*controller)
	if pvc != nil {
		put(pvc, informers.PersistentVolumeClaims(factory).Informer())
	}
	if pv != nil {
		put(pv, informers.PersistentVolumes(factory).Informer())
	}
	if class != nil {
		put(class, informers.StorageClasses(factory).Informer())
	}
	for _, key := range []string{"d/c", "a"} {
		// The caches must show what was written for the claim before the volume is synced.
		if v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
			_ = informers.PersistentVolumes(factory).Informer().GetIndexer().Update(v)
		}
		if claim, err := client.CoreV1().PersistentVolumeClaims("d").Get(t.Context(), "c",
			metav1.GetOptions{}); err == nil {
			_ = informers.PersistentVolumeClaims(factory).Informer().GetIndexer().Update(claim)
		}
		if err := b.sync(t.Context(), key); err != nil {
			t.Errorf("%s: %s: %v", name, key, err)
		}
	}
	claim, err := client.CoreV1().PersistentVolumeClaims("d").Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		claim = nil
	}
	v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		v = nil
	}
	return referenceText(claim, v)
}
