package apiserver_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestObjectsAreCreatedReadChangedAndDeleted(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			one := rest.CopyConfig(cfg)
			one.ContentType = contentType
			checkLifecycle(t, kubernetes.NewForConfigOrDie(one))
		}
	})
}

func checkLifecycle(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx := context.Background()
	maps := client.CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || len(made.ManagedFields) != 1 {
		t.Errorf("created %+v", made)
	}
	if _, err := maps.Create(ctx, made.DeepCopy(), metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("creating with a resource version: %v", err)
	}
	again := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := maps.Create(ctx, again, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) ||
		err.Error() != `configmaps "a" already exists` {
		t.Errorf("creating twice: %v", err)
	}
	made.Data["k"] = "w"
	changed, err := maps.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil || changed.ResourceVersion == made.ResourceVersion {
		t.Fatalf("update: %+v, %v", changed, err)
	}
	if _, err := maps.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) || err.Error() !=
		`Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again` {
		t.Errorf("stale update (S11): %v", err)
	}
	got, err := maps.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || got.Data["k"] != "w" || got.ResourceVersion != changed.ResourceVersion {
		t.Fatalf("get: %+v, %v", got, err)
	}
	for patchType, patch := range map[types.PatchType]string{
		types.JSONPatchType:           `[{"op":"add","path":"/data/json","value":"1"}]`,
		types.MergePatchType:          `{"data":{"merge":"1"}}`,
		types.StrategicMergePatchType: `{"data":{"strategic":"1"}}`,
	} {
		if got, err = maps.Patch(ctx, "a", patchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatalf("%s: %v", patchType, err)
		}
	}
	if len(got.Data) != 4 {
		t.Errorf("patched: %v", got.Data)
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.ResourceVersion == "" {
		t.Fatalf("list: %+v, %v", list, err)
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) ||
		err.Error() != `configmaps "a" not found` {
		t.Errorf("get after delete: %v", err)
	}
}
