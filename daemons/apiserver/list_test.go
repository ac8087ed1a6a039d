package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	corev1schema "k8s.io/apimachinery/pkg/runtime/schema"
)

func createConfigMaps(t testing.TB, ctx context.Context, client kubernetes.Interface, n int) {
	t.Helper()
	for i := range n {
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap(fmt.Sprintf("m%03d", i)),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPagesHaveOneRevision(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		ctx := timeoutContext(t)
		client := kubernetes.NewForConfigOrDie(cfg)
		maps := client.CoreV1().ConfigMaps("default")
		createConfigMaps(t, ctx, client, 10)
		first, err := maps.List(ctx, metav1.ListOptions{Limit: 4})
		if err != nil || len(first.Items) != 4 || first.Continue == "" || first.RemainingItemCount == nil ||
			*first.RemainingItemCount != 6 {
			t.Fatalf("first page: %+v, %v", first.ListMeta, err)
		}
		if err := maps.Delete(ctx, "m005", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Create(ctx, configMap("m0055"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Patch(ctx, "m007", "application/merge-patch+json", []byte(`{"data":{"n":"new"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		var names []string
		for page := first; ; {
			if page.ResourceVersion != first.ResourceVersion {
				t.Errorf("a page of revision %s, want %s", page.ResourceVersion, first.ResourceVersion)
			}
			for _, m := range page.Items {
				names = append(names, m.Name)
				if m.Data["n"] != "0" {
					t.Errorf("%s is newer than its list", m.Name)
				}
			}
			if page.Continue == "" {
				break
			}
			if page, err = maps.List(ctx, metav1.ListOptions{Limit: 4, Continue: page.Continue}); err != nil {
				t.Fatal(err)
			}
		}
		if want := "m000 m001 m002 m003 m004 m005 m006 m007 m008 m009"; strings.Join(names, " ") != want {
			t.Errorf("listed %v", names)
		}
		exact, err := maps.List(
			ctx,
			metav1.ListOptions{
				ResourceVersion:      first.ResourceVersion,
				ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			},
		)
		if err != nil || len(exact.Items) != 10 {
			t.Errorf("exact: %d, %v", len(exact.Items), err)
		}
		if _, err := maps.List(ctx, metav1.ListOptions{Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
			t.Errorf("a bad token: %v", err)
		}
	})
}

// sendRaw sends requests that Go clients cannot send.
func sendRaw(t testing.TB, cfg *rest.Config, method, path, body string, header map[string]string) (*http.Response,
	[]byte) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(timeoutContext(t), method, cfg.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, data
}

func TestResponsesHaveTheRequestedFormat(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	createConfigMaps(t, ctx, client, 400)
	const path = "/api/v1/namespaces/default/configmaps"

	_, data := sendRaw(t, cfg, "GET", path, "",
		map[string]string{"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"})
	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil || table.Kind != "Table" || len(table.Rows) != 400 {
		t.Fatalf("table: %v %s", err, data[:200])
	}
	if table.ColumnDefinitions[0].Name != "Name" || len(table.Rows[0].Cells) != len(table.ColumnDefinitions) ||
		table.Rows[0].Cells[0] != "m000" {
		t.Errorf("%+v %+v", table.ColumnDefinitions, table.Rows[0].Cells)
	}
	var row metav1.PartialObjectMetadata
	if err := json.Unmarshal(table.Rows[0].Object.Raw, &row); err != nil || row.Name != "m000" ||
		row.ResourceVersion == "" {
		t.Errorf("a row's object: %+v, %v", row, err)
	}

	partial, err := metadata.NewForConfigOrDie(cfg).
		Resource(corev1schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
		Namespace("default").
		List(ctx, metav1.ListOptions{})
	if err != nil || len(partial.Items) != 400 || partial.Items[0].Name != "m000" {
		t.Errorf("metadata: %v", err)
	}

	unpacked := func(query, accept string) []byte {
		t.Helper()
		answer, data := sendRaw(t, cfg, "GET", path+query, "",
			map[string]string{"Accept-Encoding": "deflate, gzip;q=0.5", "Accept": accept})
		if answer.Header.Get("Content-Encoding") != "gzip" || answer.Header.Get("Vary") != "Accept-Encoding" {
			t.Fatalf("%s as %s is not compressed: %v", query, accept, answer.Header)
		}
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if data, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
		return data
	}
	var list corev1.ConfigMapList
	if err := json.Unmarshal(unpacked("", ""), &list); err != nil || len(list.Items) != 400 ||
		list.Items[3].ResourceVersion == "" {
		t.Errorf("gzip: %d, %v", len(list.Items), err)
	}
	large := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "large"},
		Data:       map[string]string{"a": strings.Repeat("b", 200<<10)},
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for accept, begins := range map[string]string{
		"application/yaml": "apiVersion: v1\n", "application/cbor": "\xd9\xd9\xf7",
		"application/json;pretty=1": "{\n  \"kind\"", "application/vnd.kubernetes.protobuf": "k8s\x00",
	} {
		if data := unpacked("?pretty=true", accept); !strings.HasPrefix(string(data), begins) {
			t.Errorf("%s begins with %q", accept, data[:20])
		}
	}
	var one corev1.ConfigMap
	if err := json.Unmarshal(unpacked("/large", ""), &one); err != nil || len(one.Data["a"]) != 200<<10 {
		t.Errorf("one large object: %v", err)
	}

	if answer, data := sendRaw(t, cfg, "GET", path+"/m000", "",
		map[string]string{"Accept": "application/yaml"}); !strings.HasPrefix(string(data), "apiVersion: v1\n") {
		t.Errorf("yaml: %v %s", answer.Header, data)
	}
}

func TestUnsupportedFormatsAreRejected(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const path = "/api/v1/namespaces/default/configmaps"
	answer, data := sendRaw(t, cfg, "GET", path+"?watch=1", "",
		map[string]string{"Accept": "text/html, application/yaml;q=0.5"})
	if answer.StatusCode != 406 || !strings.Contains(string(data), "application/json;stream=watch") {
		t.Errorf("a watch in YAML: %v %s", answer.Header, data)
	}
	for _, c := range []struct {
		method, path, body string
		header             map[string]string
		code               int
		reason             metav1.StatusReason
	}{
		{"GET", path, "", map[string]string{"Accept": "text/html"}, 406, metav1.StatusReasonNotAcceptable},
		{"POST", path, "x", map[string]string{"Content-Type": "text/plain"}, 415,
			metav1.StatusReasonUnsupportedMediaType},
		{"POST", path, "{", map[string]string{"Content-Type": "application/json"}, 400, metav1.StatusReasonBadRequest},
		{"POST", path, `{"kind":"Pod","apiVersion":"v1"}`, nil, 400, metav1.StatusReasonBadRequest},
		{"POST", path, `{"apiVersion":"v2"}`, nil, 400, metav1.StatusReasonBadRequest},
		{"POST", path + "?fieldValidation=Strict", `{"metadata":{"name":"x"},"dota":{}}`, nil, 400, metav1.StatusReasonBadRequest},
		{"POST", path, `{"metadata":{"name":"A_B"}}`, nil, 422, metav1.StatusReasonInvalid},
		{"POST", path, `{"metadata":{"name":"x"},"data":{"a":"` + strings.Repeat("x", 4<<20) + `"}}`, nil, 413, metav1.StatusReasonRequestEntityTooLarge},
		{"PUT", path, "{}", nil, 405, metav1.StatusReasonMethodNotAllowed},
		{"GET", "/api/v1/nothings", "", nil, 404, metav1.StatusReasonNotFound},
		{"GET", path + "/m000/nope", "", nil, 404, metav1.StatusReasonNotFound},
	} {
		answer, data := sendRaw(t, cfg, c.method, c.path, c.body, c.header)
		var st metav1.Status
		if err := json.Unmarshal(data, &st); err != nil || answer.StatusCode != c.code || st.Reason != c.reason ||
			st.Code != int32(c.code) ||
			st.Kind != "Status" {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, answer.StatusCode, data, c.code, c.reason)
		}
	}
	answer, _ = sendRaw(t, cfg, "POST", path, `{"metadata":{"name":"warned"},"dota":{}}`, nil)
	if w := answer.Header.Get("Warning"); answer.StatusCode != 201 || w != `299 - "unknown field \"dota\""` {
		t.Errorf("warned %d with %q", answer.StatusCode, w)
	}
}
