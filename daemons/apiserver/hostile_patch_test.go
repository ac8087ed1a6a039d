package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const mergeType = "application/merge-patch+json"

// One number of a few bytes must not occupy the server for minutes, however it arrives.
func TestHugeQuantitiesAreRefused(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const quotas = "/api/v1/namespaces/default/resourcequotas"
	object := func(cpu string) string {
		return `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"a"},"spec":{"hard":{"cpu":"` + cpu + `"}}}`
	}
	if code, text := sendRequest(t, cfg, "POST", quotas, object("1")); code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	const huge = "1e-999999999"
	for name, row := range map[string]struct{ method, path, kind, body string }{
		"create":    {"POST", quotas, "application/json", object(huge)},
		"update":    {"PUT", quotas + "/a", "application/json", object(huge)},
		"yaml":      {"POST", quotas, "application/yaml", "kind: ResourceQuota\nspec: {hard: {cpu: \"" + huge + "\"}}"},
		"merge":     {"PATCH", quotas + "/a", mergeType, `{"spec":{"hard":{"cpu":"` + huge + `"}}}`},
		"strategic": {"PATCH", quotas + "/a", strategicType, `{"spec":{"hard":{"cpu":"` + huge + `"}}}`},
		"json patch": {"PATCH", quotas + "/a", jsonPatchType,
			`[{"op":"replace","path":"/spec/hard/cpu","value":"` + huge + `"}]`},
		"apply": {"PATCH", quotas + "/a?fieldManager=m&force=true", applyType, object(huge)},
	} {
		code, text := sendRequest(t, cfg, row.method, row.path, row.body, "Content-Type", row.kind)
		if code < 400 || code >= 500 || !strings.Contains(text, "quantities must have at most") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{}}}
	// The text of another quantity is replaced by one that has the same length.
	digits := strings.Repeat("9", len(huge))
	quota.Spec.Hard["cpu"] = resource.MustParse(digits)
	raw, err := quota.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	raw = []byte(strings.Replace(string(raw), digits, huge, 1))
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}, Raw: raw}
	message, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	code, text := sendRequest(t, cfg, "POST", quotas, "k8s\x00"+string(message), "Content-Type",
		runtime.ContentTypeProtobuf)
	if code != http.StatusBadRequest || !strings.Contains(text, "quantities must have at most") {
		t.Errorf("protobuf: %d %s", code, text)
	}
}

// The libraries compare every item of a patch with every item of the object.
func TestPatchesOfLongListsAreBounded(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const maps = "/api/v1/namespaces/default/configmaps"
	repeat := func(n int, format string) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(format, i))
		}
		return strings.Join(list, ",")
	}
	if code, text := sendRequest(t, cfg, "POST", maps, `{"metadata":{"name":"a","finalizers":[`+
		repeat(3000, `"example.com/a%d"`)+`]}}`); code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	for name, row := range map[string]struct {
		kind, body string
		want       int
	}{
		"many items": {strategicType, `{"metadata":{"finalizers":[` + repeat(3000, `"example.com/b%d"`) + `]}}`,
			http.StatusRequestEntityTooLarge},
		"an order": {strategicType, `{"metadata":{"$setElementOrder/finalizers":[` + repeat(3000, `"example.com/a%d"`) +
			`]}}`, http.StatusRequestEntityTooLarge},
		"many operations": {jsonPatchType, `[` + repeat(7000, `{"op":"add","path":"/metadata/finalizers/0","value":"e.x/%d"}`) +
			`]`, http.StatusRequestEntityTooLarge},
		"a few items":      {strategicType, `{"metadata":{"finalizers":["example.com/b"]}}`, http.StatusOK},
		"a few operations": {jsonPatchType, `[{"op":"remove","path":"/metadata/finalizers/0"}]`, http.StatusOK},
		"a merge patch": {mergeType, `{"metadata":{"finalizers":[` + repeat(3000, `"example.com/b%d"`) + `]}}`,
			http.StatusOK},
	} {
		if code, text := sendRequest(t, cfg, "PATCH", maps+"/a", row.body, "Content-Type", row.kind); code != row.want {
			t.Errorf("%s: %d %.300s", name, code, text)
		}
	}
}
