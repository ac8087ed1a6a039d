package storage

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

// Both data source fields of a claim are kept equal. The old field drops unsupported references, and the new one
// rejects them.
//
//style:long a table of the two fields, as they are sent and stored
func TestTheTwoDataSourceFieldsAreEqual(t *testing.T) {
	type (
		local = corev1.TypedLocalObjectReference
		typed = corev1.TypedObjectReference
	)
	snapshots, others := new("snapshot.storage.k8s.io"), new("example.com")
	kind := PersistentVolumeClaims()
	claim := func(d *local, ref *typed) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{DataSource: d, DataSourceRef: ref,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			}}}
	}
	for name, c := range map[string]struct {
		source  *local
		ref     *typed
		want    *local
		wantRef *typed
		refused string // the field
	}{
		"a claim in the old field": {&local{Kind: "PersistentVolumeClaim", Name: "a"}, nil,
			&local{Kind: "PersistentVolumeClaim", Name: "a"}, &typed{Kind: "PersistentVolumeClaim", Name: "a"}, ""},
		"a snapshot in the old field": {&local{APIGroup: snapshots, Kind: "VolumeSnapshot", Name: "a"}, nil,
			&local{APIGroup: snapshots, Kind: "VolumeSnapshot", Name: "a"},
			&typed{APIGroup: snapshots, Kind: "VolumeSnapshot", Name: "a"}, ""},
		"another kind in the old field": {&local{APIGroup: others, Kind: "Backup", Name: "a"}, nil, nil, nil,
			""},
		"another core kind in the old field": {&local{Kind: "Pod", Name: "a"}, nil, nil, nil, ""},
		"a snapshot of no group":             {&local{Kind: "VolumeSnapshot", Name: "a"}, nil, nil, nil, ""},
		"another kind in the new field": {nil, &typed{APIGroup: others, Kind: "Backup", Name: "a"},
			&local{APIGroup: others, Kind: "Backup", Name: "a"}, &typed{APIGroup: others, Kind: "Backup", Name: "a"},
			""},
		"another kind in both fields": {&local{APIGroup: others, Kind: "Backup", Name: "a"},
			&typed{APIGroup: others, Kind: "Backup", Name: "a"}, &local{APIGroup: others, Kind: "Backup", Name: "a"},
			&typed{APIGroup: others, Kind: "Backup", Name: "a"}, ""},
		"another core kind in the new field": {nil, &typed{Kind: "Pod", Name: "a"}, &local{Kind: "Pod", Name: "a"},
			&typed{Kind: "Pod", Name: "a"}, "spec.dataSourceRef"},
		"one in another namespace": {nil,
			&typed{Kind: "PersistentVolumeClaim", Name: "a", Namespace: new("n")}, nil,
			&typed{Kind: "PersistentVolumeClaim", Name: "a", Namespace: new("n")}, ""},
		"none": {nil, nil, nil, nil, ""},
		"fields that say something else each": {&local{Kind: "PersistentVolumeClaim", Name: "a"},
			&typed{Kind: "PersistentVolumeClaim", Name: "b"}, &local{Kind: "PersistentVolumeClaim", Name: "a"},
			&typed{Kind: "PersistentVolumeClaim", Name: "b"}, "spec"},
		"a snapshot in the new field, not named": {nil, &typed{APIGroup: snapshots, Kind: "VolumeSnapshot"},
			&local{APIGroup: snapshots, Kind: "VolumeSnapshot"}, &typed{APIGroup: snapshots, Kind: "VolumeSnapshot"},
			"spec.dataSourceRef.name"},
	} {
		obj := claim(c.source, c.ref)
		kind.Default(obj)
		kind.PrepareCreate(obj)
		if !value.Same(obj.Spec.DataSource, c.want) || !value.Same(obj.Spec.DataSourceRef, c.wantRef) {
			t.Errorf("%s: %v and %v, want %v and %v", name, obj.Spec.DataSource, obj.Spec.DataSourceRef, c.want,
				c.wantRef)
		}
		errs := kind.Validate(obj)
		if c.refused == "" && len(errs) > 0 ||
			c.refused != "" && !slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Field == c.refused }) {
			t.Errorf("%s: %v, want one about %q", name, errs, c.refused)
		}
		if c.refused != "" {
			continue
		}
		// A client that knows only one of the fields, and an object stored before the second field existed.
		for _, both := range []bool{true, false} {
			old, changed := obj.DeepCopy(), obj.DeepCopy()
			if changed.Spec.DataSourceRef = nil; !both {
				old.Spec.DataSource = nil
			}
			if c.wantRef == nil || c.wantRef.Namespace != nil {
				continue
			}
			kind.PrepareUpdate(changed, old)
			if errs := kind.ValidateUpdate(changed, old); len(errs) > 0 ||
				!value.Same(changed.Spec.DataSourceRef, c.wantRef) ||
				!value.Same(changed.Spec.DataSource, c.want) {
				t.Errorf("%s, changed by one who knows the old field: %v and %v: %v", name, changed.Spec.DataSource,
					changed.Spec.DataSourceRef, errs)
			}
		}
	}
	// A claim template of a StatefulSet stays as written.
	set := claim(&local{Kind: "PersistentVolumeClaim", Name: "a"}, nil)
	if volume.DefaultClaim(set); set.Spec.DataSourceRef != nil {
		t.Error("a template is changed")
	}
}
