package provisioner

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
)

func ptr[T any](v T) *T { return &v }

func storageSize(s string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(s)}
}

func newClaimOn(node string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c", UID: "u", Annotations: map[string]string{
			"volume.kubernetes.io/selected-node":       node,
			"volume.kubernetes.io/storage-provisioner": directory.Provisioner}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
			StorageClassName: ptr("k"),
			Resources:        corev1.VolumeResourceRequirements{Requests: storageSize("1Gi")},
		}}
}

func newClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:    metav1.ObjectMeta{Name: "k"},
		Provisioner:   directory.Provisioner,
		ReclaimPolicy: ptr(corev1.PersistentVolumeReclaimRetain),
	}
}

func newNode(labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
}

func TestNewVolumes(t *testing.T) {
	v, err := NewVolume(newClaimOn("n"), newClass(), newNode(map[string]string{"kubernetes.io/hostname": "host"}))
	if err != nil {
		t.Fatal(err)
	}
	affinity := v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	if v.Name != "pvc-u" || v.Spec.Local.Path != "/var/lib/clusterctl/volumes/pvc-u" ||
		affinity.Key != "kubernetes.io/hostname" || affinity.Values[0] != "host" ||
		v.Spec.ClaimRef.UID != "u" || v.Spec.PersistentVolumeReclaimPolicy != "Retain" ||
		v.Spec.StorageClassName != "k" || v.Spec.Capacity.Storage().String() != "1Gi" ||
		!directory.IsProvisioned(v) ||
		v.Annotations[directory.NodeAnnotation] != "n" ||
		v.Finalizers[0] != directory.Finalizer {
		t.Errorf("made is %+v", v)
	}
}

func TestUnsupportedClaimsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim, *storagev1.StorageClass)
		node   *corev1.Node
		want   string
		again  bool // another node might work
	}{
		"no node chosen": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) { c.Annotations = nil },
			nil, "volumeBindingMode WaitForFirstConsumer", false},
		"no such node":   {nil, nil, `node "n" does not exist`, true},
		"a node unnamed": {nil, newNode(nil), "has no label kubernetes.io/hostname", true},
		"a wrong zone": {func(_ *corev1.PersistentVolumeClaim,
			s *storagev1.StorageClass) {
			s.AllowedTopologies = zoneTerms("b")
		}, newNode(map[string]string{"kubernetes.io/hostname": "n", "zone": "a"}), "allowedTopologies", true},
		"the right zone": {func(_ *corev1.PersistentVolumeClaim,
			s *storagev1.StorageClass) {
			s.AllowedTopologies = zoneTerms("b")
		}, newNode(map[string]string{"kubernetes.io/hostname": "n", "zone": "b"}), "", false},
		"shared by nodes": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.AccessModes[0] = corev1.ReadWriteMany
		}, nil, "access mode ReadWriteMany is not supported", false},
		"a device": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
		}, nil, "volume mode Block", false},
		"a selector": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.Selector = &metav1.LabelSelector{}
		}, nil, "Selector is not supported", false},
		"a copy": {func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{}
		}, nil, "data source", false},
		"parameters": {func(_ *corev1.PersistentVolumeClaim, s *storagev1.StorageClass) {
			s.Parameters = map[string]string{"a": "b"}
		}, nil, "parameters", false},
		"mount options": {func(_ *corev1.PersistentVolumeClaim,
			s *storagev1.StorageClass) {
			s.MountOptions = []string{"ro"}
		}, nil, "mountOptions", false},
	} {
		claim, class := newClaimOn("n"), newClass()
		if c.change != nil {
			c.change(claim, class)
		}
		_, err := NewVolume(claim, class, c.node)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) ||
			errors.Is(err, errOtherNodeNeeded) != c.again {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func zoneTerms(name string) []corev1.TopologySelectorTerm {
	return []corev1.TopologySelectorTerm{
		{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{name}}}},
	}
}

func TestGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		request, volume, capacity string
		uid, want                 string
	}{
		"as it is":           {"1Gi", "1Gi", "1Gi", "u", ""},
		"more":               {"2Gi", "1Gi", "1Gi", "u", "2Gi"},
		"half done":          {"2Gi", "2Gi", "1Gi", "u", "2Gi"},
		"lowered again":      {"2Gi", "3Gi", "1Gi", "u", "2Gi"},
		"another claim's":    {"2Gi", "1Gi", "1Gi", "other", ""},
		"the volume is more": {"1Gi", "3Gi", "1Gi", "u", ""},
	} {
		claim := newClaimOn("n")
		v, err := NewVolume(claim, newClass(), newNode(map[string]string{"kubernetes.io/hostname": "n"}))
		if err != nil {
			t.Fatal(err)
		}
		claim.Spec.VolumeName, claim.Spec.Resources.Requests = v.Name, storageSize(c.request)
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storageSize(c.capacity)}
		v.Spec.Capacity, v.Spec.ClaimRef.UID = storageSize(c.volume), "u"
		if c.uid != "u" {
			v.Spec.ClaimRef.UID = "x"
		}
		got := ""
		if q := Growth(claim, v); q != nil {
			got = q.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
