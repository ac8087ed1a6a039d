package client

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestWithoutManagersReturnsACopy(t *testing.T) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:          "web",
			Labels:        map[string]string{"a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "me"}},
		},
	}
	got, err := WithoutManagers(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := got.(*corev1.Service); got == s || got.ManagedFields != nil || got.Name != "web" ||
		got.Labels["a"] != "b" {
		t.Errorf("got %+v", got)
	}
	if len(s.ManagedFields) != 1 {
		t.Error("the object itself has changed")
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "web"}
	if got, err := WithoutManagers(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("got %v, %v", got, err)
	}
}
