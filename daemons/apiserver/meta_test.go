package apiserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// An update changes the generation if controllers must act on it, and cannot begin a deletion.
// Proves S12.
func TestUpdatesSetGenerationAndKeepDeletionTime(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	if _, err := kubernetes.NewForConfigOrDie(cfg).AppsV1().Deployments("default").Create(timeoutContext(t),
		deployment("d"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/apps/v1/namespaces/default/deployments/d"
	for _, c := range []struct {
		on, patch string
		code      int
		message   string // part of the response
		want      int64  // generation after the update
	}{
		{"", `{"metadata":{"labels":{"a":"b"}}}`, 200, "", 1},
		{"", `{"metadata":{"annotations":{"a":"b"}}}`, 200, "", 2}, // replica sets get them
		{"/status", `{"metadata":{"annotations":{"a":"c"}},"status":{"replicas":1}}`, 200, "", 2},
		{"", `{"spec":{"paused":true},"metadata":{"annotations":{"a":"d"}}}`, 200, "", 3},
		{"", `{"status":{"replicas":7},"metadata":{"generation":9,"creationTimestamp":"2001-01-01T00:00:00Z"}}`, 200, "", 3},
		{"", `{"metadata":{"deletionTimestamp":"2001-01-01T00:00:00Z"}}`, 422, "metadata.deletionTimestamp: Invalid value", 3},
		{"", `{"metadata":{"deletionGracePeriodSeconds":5}}`, 422, "metadata.deletionGracePeriodSeconds: Invalid value", 3},
		{"", `{"metadata":{"generateName":"other-"}}`, 200, `"generateName":"other-"`, 3},
		{"", `{"metadata":{"generateName":"a/b%"}}`, 422, `metadata.generateName: Invalid value: \"a/b%\": may not contain '/'`, 3},
		{"", `{"metadata":{"finalizers":["a.b/c"]}}`, 200, "", 3},
		{"DELETE", "", 200, "", 4},
		{"", `{"metadata":{"deletionTimestamp":null,"deletionGracePeriodSeconds":null}}`, 200, "", 4},
		{"", `{"metadata":{"finalizers":["a.b/c","d.e/f"]}}`, 422, "no new finalizers can be added if the object is being deleted", 4},
		{"", `{"metadata":{"finalizers":null}}`, 200, "", 4},
	} {
		method, at := "PATCH", path+c.on
		if c.on == "DELETE" {
			method, at = "DELETE", path
		}
		answer, data := sendRaw(t, cfg, method, at, c.patch,
			map[string]string{"Content-Type": "application/merge-patch+json"})
		var got metav1.PartialObjectMetadata
		if err := json.Unmarshal(data, &got); err != nil || answer.StatusCode != c.code ||
			!strings.Contains(string(data), c.message) {
			t.Errorf("%s %s: %d %s, want %d %s", method, c.patch, answer.StatusCode, data, c.code, c.message)
		}
		if c.code == 200 && got.Generation != c.want {
			t.Errorf("%s %s: generation %d, want %d", method, c.patch, got.Generation, c.want)
		}
		if deleted := got.DeletionTimestamp != nil; c.code == 200 && deleted != (c.want == 4) {
			t.Errorf("%s %s: deleted %v", method, c.patch, deleted)
		}
	}
}

// Objects that are not in a cache have partial metadata, too.
// Proves S12.
func TestVirtualKindsHavePartialMetadata(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const as = ";g=meta.k8s.io;v=v1;as="
	for _, c := range []struct{ accept, path, want string }{
		{"application/json" + as + "PartialObjectMetadataList", "/api/v1/componentstatuses", `"kind":"PartialObjectMetadataList"`},
		{"application/json" + as + "PartialObjectMetadata", "/api/v1/componentstatuses/etcd-0", `"kind":"PartialObjectMetadata"`},
		{"application/vnd.kubernetes.protobuf" + as + "PartialObjectMetadataList", "/api/v1/componentstatuses",
			"k8s\x00"},
	} {
		answer, data := sendRaw(t, cfg, "GET", c.path, "", map[string]string{"Accept": c.accept})
		if answer.StatusCode != 200 || !strings.Contains(string(data), c.want) ||
			!strings.Contains(string(data), "PartialObjectMetadata") ||
			!strings.Contains(string(data), "etcd-0") ||
			strings.Contains(string(data), "conditions") {
			t.Errorf("%s as %s: %d %q", c.path, c.accept, answer.StatusCode, data)
		}
	}
}
