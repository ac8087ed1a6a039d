package apiserver_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// hosts is a definition whose versions have the same content in different fields: v1 has an address, v2 a host and a
// port. Only v2 has a status and a scale.
const hosts = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"hosts.net.example.com"},
"spec":{"group":"net.example.com","scope":"Namespaced","names":{"plural":"hosts","singular":"host","kind":"Host"},
 "conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"URL/convert","caBundle":"CA"}}},
 "versions":[
 {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{
  "spec":{"type":"object","properties":{"address":{"type":"string","pattern":"^[a-z.]+:[0-9]+$"},"replicas":{"type":"integer"}}},
  "status":{"type":"object","properties":{"ready":{"type":"integer"}}}}}}},
 {"name":"v2","served":true,"storage":false,
  "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.ready"}},
  "selectableFields":[{"jsonPath":".spec.host"}],"additionalPrinterColumns":[{"name":"Host","type":"string","jsonPath":".spec.host"}],
  "schema":{"openAPIV3Schema":{"type":"object","properties":{
  "spec":{"type":"object","properties":{"host":{"type":"string"},"port":{"type":"integer","maximum":65535},"replicas":{"type":"integer"},"size":{"type":"string","default":"small"}}},
  "status":{"type":"object","properties":{"ready":{"type":"integer"}}}}}}}]}}`

const (
	hostsV1 = "/apis/net.example.com/v1/namespaces/default/hosts"
	hostsV2 = "/apis/net.example.com/v2/namespaces/default/hosts"
)

// conversionWebhook is a conversion webhook for hosts.
type conversionWebhook struct {
	server  *httptest.Server
	mu      sync.Mutex
	failure string
	sizes   []int // number of objects in each review
}

func newConversionWebhook(t testing.TB) *conversionWebhook {
	tr := &conversionWebhook{}
	tr.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &apiextensionsv1.ConversionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		tr.mu.Lock()
		tr.sizes = append(tr.sizes, len(review.Request.Objects))
		fail := tr.failure
		tr.mu.Unlock()
		answer := &apiextensionsv1.ConversionResponse{
			UID:    review.Request.UID,
			Result: metav1.Status{Status: metav1.StatusSuccess},
		}
		for _, raw := range review.Request.Objects {
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal(raw.Raw, u); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			convertHost(u, review.Request.DesiredAPIVersion)
			if fail == "rename" {
				u.SetName("other")
			}
			answer.ConvertedObjects = append(answer.ConvertedObjects, runtime.RawExtension{Object: u})
		}
		if fail == "say" {
			answer.Result = metav1.Status{Status: metav1.StatusFailure, Message: "I cannot"}
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(tr.server.Close)
	return tr
}

func (tr *conversionWebhook) definition() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tr.server.Certificate().Raw})
	return strings.NewReplacer("URL", tr.server.URL, `"CA"`, `"`+base64.StdEncoding.EncodeToString(ca)+`"`).
		Replace(hosts)
}

func (tr *conversionWebhook) setFailure(fail string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.failure, tr.sizes = fail, nil
}

func (tr *conversionWebhook) reviewSizes() []int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.sizes
}

func convertHost(u *unstructured.Unstructured, version string) {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	if address, ok := spec["address"].(string); ok && strings.HasSuffix(version, "v2") {
		host, port, _ := strings.Cut(address, ":")
		var n int64
		_, _ = fmt.Sscan(port, &n)
		spec["host"], spec["port"] = host, n
		delete(spec, "address")
	} else if host, ok := spec["host"]; ok && strings.HasSuffix(version, "v1") {
		spec["address"] = fmt.Sprint(host, ":", spec["port"])
		delete(spec, "host")
		delete(spec, "port")
		delete(spec, "size")
	}
	u.Object["spec"] = spec
	u.SetAPIVersion(version)
}

func hostObject(version, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"net.example.com/%s","kind":"Host","metadata":{"name":%q},"spec":{%s}}`, version,
		name, spec)
}

// Proves S12.
func TestConversionWebhookConvertsVersions(t *testing.T) {
	tr := newConversionWebhook(t)
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, tr.definition(), hostsV1)
	const apply = "application/apply-patch+yaml"
	for _, c := range []struct {
		name, method, path, body, as string
		code                         int
		want, lacks                  []string
	}{
		{name: "the stored version", method: "POST", path: hostsV1, body: hostObject("v1", "a", `"address":"x.org:80"`), code: 201, want: []string{`"address":"x.org:80"`}},
		{name: "is read in the other", method: "GET", path: hostsV2 + "/a", code: 200, want: []string{`"host":"x.org"`, `"port":80`, `"apiVersion":"net.example.com/v2"`, `"size":"small"`}},
		{name: "the other is written", method: "POST", path: hostsV2, body: hostObject("v2", "b", `"host":"y.org","port":90`), code: 201, want: []string{`"host":"y.org"`, `"generation":1`}},
		{name: "and stored as it is stored", method: "GET", path: hostsV1 + "/b", code: 200, want: []string{`"address":"y.org:90"`}, lacks: []string{`"size":`}},
		{name: "each version has its schema", method: "POST", path: hostsV2, body: hostObject("v2", "c", `"host":"y.org","port":70000`), code: 422, want: []string{"spec.port"}},
		{name: "and the other its own", method: "POST", path: hostsV1, body: hostObject("v1", "c", `"address":"nothing"`), code: 422, want: []string{"spec.address"}},
		{name: "a patch is of what the client sees", method: "PATCH", path: hostsV2 + "/a", body: `{"spec":{"port":81}}`, as: mergePatch, code: 200, want: []string{`"port":81`, `"generation":2`}},
		{name: "and changes what is stored", method: "GET", path: hostsV1 + "/a", code: 200, want: []string{`"address":"x.org:81"`}},
		{name: "apply in one version", method: "PATCH", path: hostsV2 + "/d?fieldManager=one", body: hostObject("v2", "d", `"host":"z.org","port":1`), as: apply, code: 201, want: []string{`"f:host"`}},
		{name: "conflicts are found in it", method: "PATCH", path: hostsV2 + "/d?fieldManager=two", body: hostObject("v2", "d", `"port":2`), as: apply, code: 409, want: []string{`conflict with \"one\"`, ".spec.port"}},
		{name: "what one manages stays in the other version", method: "PATCH", path: hostsV1 + "/d?fieldManager=two", body: hostObject("v1", "d", `"replicas":2`), as: apply, code: 200, want: []string{`"address":"z.org:1"`, `"replicas":2`}},
		{name: "fields of a version", method: "GET", path: hostsV2 + "?fieldSelector=spec.host%3Dy.org", code: 200, want: []string{`"name":"b"`}, lacks: []string{`"name":"a"`}},
		{name: "are of no other", method: "GET", path: hostsV1 + "?fieldSelector=spec.host%3Dy.org", code: 400},
		{name: "the status of a version", method: "PATCH", path: hostsV2 + "/a/status", body: `{"status":{"ready":3}}`, as: mergePatch, code: 200, want: []string{`"ready":3`, `"port":81`}},
		{name: "is of no other", method: "GET", path: hostsV1 + "/a/status", code: 404},
		{name: "the scale of a version", method: "PATCH", path: hostsV2 + "/a/scale", body: `{"spec":{"replicas":5}}`, as: mergePatch, code: 200, want: []string{`"replicas":5`}},
		{name: "is of no other", method: "GET", path: hostsV1 + "/a/scale", code: 404},
		{name: "a dry run", method: "POST", path: hostsV2 + "?dryRun=All", body: hostObject("v2", "e", `"host":"q.org","port":9`), code: 201, want: []string{`"host":"q.org"`}},
		{name: "a deletion", method: "DELETE", path: hostsV2 + "/d", code: 200, want: []string{"Success"}},
		{name: "discovery knows what each version has", method: "GET", path: "/apis/net.example.com/v2", code: 200,
			want: []string{"hosts/scale", "hosts/status"}},
		{name: "and what not", method: "GET", path: "/apis/net.example.com/v1", code: 200,
			lacks: []string{"hosts/scale", "hosts/status"}},
	} {
		headers := []string{}
		if c.as != "" {
			headers = append(headers, "Content-Type", c.as)
		}
		code, text := sendRequest(t, cfg, c.method, c.path, c.body, headers...)
		if code != c.code {
			t.Errorf("%s: %d %s", c.name, code, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: lacks %s: %s", c.name, want, text)
			}
		}
		for _, lacks := range c.lacks {
			if strings.Contains(text, lacks) {
				t.Errorf("%s: has %s: %s", c.name, lacks, text)
			}
		}
	}
}

// Proves S12.
func TestListsAndWatchesConvertInBatches(t *testing.T) {
	tr := newConversionWebhook(t)
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, tr.definition(), hostsV1)
	for i := range 40 {
		if code, text := sendRequest(t, cfg, "POST", hostsV1, hostObject("v1", fmt.Sprint("h", i), fmt.Sprintf(`"address":"x.org:%d"`, i+1))); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	tr.setFailure("")
	for range 3 {
		if code, text := sendRequest(t, cfg, "GET", hostsV2, ""); code != 200 || strings.Count(text, `"host":"x.org"`) != 40 {
			t.Fatalf("%d %s", code, text)
		}
	}
	if got := tr.reviewSizes(); len(got) != 1 || got[0] != 40 {
		t.Errorf("reviews of %v objects, want one of 40", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	lines := watchLines(ctx, t, cfg, hostsV2+"?watch=1")
	for range 40 {
		if line := <-lines; !strings.Contains(line, `"type":"ADDED"`) || !strings.Contains(line, `"host":"x.org"`) {
			t.Fatal(line)
		}
	}
	if code, text := sendRequest(t, cfg, "PATCH", hostsV1+"/h7", `{"spec":{"address":"y.org:7"}}`, "Content-Type", mergePatch); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	if line := <-lines; !strings.Contains(line, `"type":"MODIFIED"`) || !strings.Contains(line, `"host":"y.org"`) {
		t.Error(line)
	}
	if code, text := sendRequest(t, cfg, "DELETE", hostsV1+"/h7", ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	if line := <-lines; !strings.Contains(line, `"type":"DELETED"`) || !strings.Contains(line, `"host":"y.org"`) {
		t.Error(line)
	}
}

// Proves S12.
func TestFailedConversionsAreReported(t *testing.T) {
	tr := newConversionWebhook(t)
	cfg := startConfig(t, stores["memory"](t), nil)
	createDefinition(t, cfg, tr.definition(), hostsV1)
	if code, text := sendRequest(t, cfg, "POST", hostsV1, hostObject("v1", "a", `"address":"x.org:80"`)); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	for fail, want := range map[string]string{"say": "I cannot", "rename": `metadata.name must not change: it was \"a\" and is \"other\"`} {
		tr.setFailure(fail)
		code, text := sendRequest(t, cfg, "GET", hostsV2+"/a", "")
		if code != 500 || !strings.Contains(text, "conversion webhook for net.example.com/v1, Kind=Host failed: ") ||
			!strings.Contains(text, want) {
			t.Errorf("%s: %d %s", fail, code, text)
		}
		if code, text := sendRequest(t, cfg, "POST", hostsV2, hostObject("v2", "b", `"host":"y.org","port":90`)); code != 500 {
			t.Errorf("%s: %d %s", fail, code, text)
		}
		// Reading the stored version needs no webhook.
		if code, text := sendRequest(t, cfg, "GET", hostsV1+"/a", ""); code != 200 {
			t.Errorf("%s: %d %s", fail, code, text)
		}
	}
}

// Proves S12.
func TestObjectsStayReadableAfterStorageVersionChange(t *testing.T) {
	tr := newConversionWebhook(t)
	store := stores["memory"](t)
	cfg := startConfig(t, store, nil)
	createDefinition(t, cfg, tr.definition(), hostsV1)
	if code, text := sendRequest(t, cfg, "POST", hostsV1, hostObject("v1", "a", `"address":"x.org:80"`)); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	swap := `[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`
	if code, text := sendRequest(t, cfg, "PATCH", definitionsPath+"/hosts.net.example.com", swap, "Content-Type",
		"application/json-patch+json"); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	second := startConfig(t, store, nil)
	for path, want := range map[string]string{hostsV1: `"address":"x.org:80"`, hostsV2: `"host":"x.org"`} {
		if code, text := sendRequest(t, second, "GET", path+"/a", ""); code != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	// A write without any change stores the new version. Until then, and no longer, the old one is converted.
	tr.setFailure("")
	if code, text := sendRequest(t, second, "PATCH", hostsV2+"/a", `{}`, "Content-Type", mergePatch); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	tr.setFailure("say")
	if code, text := sendRequest(t, second, "GET", hostsV2+"/a", ""); code != 200 || !strings.Contains(text, `"host":"x.org"`) {
		t.Errorf("%d %s", code, text)
	}
}
