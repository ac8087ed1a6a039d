package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A pod that names one object thousands of times must not fill the memory and the disk of its node.
func TestGeneratedFilesOfAPodAreLimited(t *testing.T) {
	m, source := manager(t)
	source.configMaps["large"] = &corev1.ConfigMap{Data: map[string]string{"x": strings.Repeat("x", 1<<20)}}
	large := corev1.LocalObjectReference{Name: "large"}
	pod := newPod(corev1.VolumeSource{})
	pod.Annotations = map[string]string{"a": strings.Repeat("x", 200<<10)}
	items := corev1.ConfigMapVolumeSource{LocalObjectReference: large}
	projected, downward := corev1.ProjectedVolumeSource{}, corev1.DownwardAPIVolumeSource{}
	for i := range 500 {
		path := fmt.Sprint("f", i)
		items.Items = append(items.Items, corev1.KeyToPath{Key: "x", Path: path})
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: large, Items: []corev1.KeyToPath{{Key: "x", Path: path}}}})
		downward.Items = append(downward.Items, corev1.DownwardAPIVolumeFile{Path: path,
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}})
	}
	var many []corev1.Volume
	for i := range 70 {
		many = append(many, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: large}}})
	}
	one := func(v corev1.VolumeSource) []corev1.Volume { return []corev1.Volume{{Name: "v", VolumeSource: v}} }
	for name, volumes := range map[string][]corev1.Volume{
		"items":     one(corev1.VolumeSource{ConfigMap: &items}),
		"projected": one(corev1.VolumeSource{Projected: &projected}),
		"downward":  one(corev1.VolumeSource{DownwardAPI: &downward}),
		"volumes":   many,
	} {
		pod.Spec.Volumes = volumes
		_, err := m.Setup(t.Context(), pod)
		if err == nil || !strings.Contains(err.Error(), "more than 67108864 bytes") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.RemoveAll(filepath.Join(m.PodDir("u"), "volumes")); err != nil {
			t.Fatal(err)
		}
	}
}
