package proxy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnlyTheZoneOfANodeIsKept(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "a"}},
	}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"example.com/a:1"}}}
	kept, err := trimObject(node)
	if err != nil || zoneOf(kept) != "a" || len(kept.(*corev1.Node).Status.Images) != 0 {
		t.Errorf("kept %+v, %v", kept, err)
	}
	if len(node.Status.Images) != 1 {
		t.Error("what the watch has is changed")
	}
	if got := zoneOf((*corev1.Node)(nil)); got != "" {
		t.Errorf("a node that is not known is in %q", got)
	}
}
