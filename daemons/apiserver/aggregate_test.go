package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
)

// footOpenAPI describes shoes, and a path of another group that must not be published.
const footOpenAPI = `{"swagger":"2.0","paths":{"/apis/foot.example.com/v1/shoes":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/com.example.foot.Shoe"}}}}},"/apis/apps/v1/shoes":{}},
	"definitions":{"com.example.foot.Shoe":{"properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"description":"theirs"},"unused":{}}}`

// aggregatedServer serves shoes of foot.example.com, and reports the user of each request.
func aggregatedServer(t *testing.T) (port string) {
	t.Helper()
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis/foot.example.com/v1":
			fmt.Fprint(
				w,
				`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"foot.example.com/v1","resources":[{"name":"shoes","singularName":"shoe","namespaced":true,"kind":"Shoe","verbs":["get","list","create"]},{"name":"shoes/status","namespaced":true,"kind":"Shoe","verbs":["get"]}]}`,
			)
		case r.URL.Path == "/openapi/v3":
			fmt.Fprint(
				w,
				`{"paths":{"apis/foot.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/foot.example.com/v1?hash=77"},"apis/other/v1":{"serverRelativeURL":"/x"}}}`,
			)
		case r.URL.Path == "/openapi/v2":
			fmt.Fprint(w, footOpenAPI)
		case r.URL.Path == "/openapi/v3/apis/foot.example.com/v1":
			fmt.Fprint(w, `{"openapi":"3.0.0","info":{"title":"shoes"}}`)
		default:
			body, _ := io.ReadAll(r.Body)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"kind": "Shoe", "path": r.URL.String(), "user": r.Header.Get("X-Remote-User"),
				"groups": r.Header.Values("X-Remote-Group"),
				"token":  r.Header.Get("Authorization"), "body": string(body), "method": r.Method,
			})
		}
	}))
	web.StartTLS()
	t.Cleanup(web.Close)
	_, port, err := net.SplitHostPort(web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Proves S12.
func TestRequestsAreProxiedToAggregatedServers(t *testing.T) {
	port := aggregatedServer(t)
	cfg := startConfig(t, stores["memory"](t), func(o *apiserver.Options) {
		o.Access.Authenticators = []api.Authenticator{&pipelineStage{}}
		o.Access.Authorizers = []api.Authorizer{&pipelineStage{}}
	})
	cfg.BearerToken = "good"
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	registration := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.foot.example.com"},"spec":{"group":"foot.example.com","version":"v1","insecureSkipTLSVerify":true,"groupPriorityMinimum":100,"versionPriority":10,"service":{"namespace":"default","name":"shoes","port":` + port + `}}}`
	if code, text := sendRequest(t, cfg, "POST", path,
		strings.Replace(registration, "v1.foot", "v2.foot", 1)); code != 422 ||
		!strings.Contains(text, "must be `spec.version+") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := sendRequest(t, cfg, "POST", path, registration); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	condition := func(status, reason string) {
		t.Helper()
		waitUntil(t, func() error {
			_, text := sendRequest(t, cfg, "GET", path+"/v1.foot.example.com", "")
			if !strings.Contains(text, `"type":"Available","status":"`+status+`"`) ||
				!strings.Contains(text, `"reason":"`+reason+`"`) {
				return fmt.Errorf("the condition: %s", text)
			}
			return nil
		})
	}
	condition("False", "ServiceNotFound")
	waitUntil(t, func() error {
		if code, text := sendRequest(t, cfg, "GET", "/apis/foot.example.com/v1/namespaces/default/shoes",
			""); code != 503 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	// Endpoints cannot have loopback addresses, so the service has the external name of this machine.
	service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"shoes"},"spec":{"type":"ExternalName","externalName":"localhost"}}`
	if code, text := sendRequest(t, cfg, "POST", "/api/v1/namespaces/default/services", service); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	// Changing the registration causes an immediate check.
	if code, text := sendRequest(t, cfg, "PATCH", path+"/v1.foot.example.com", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	condition("True", "Passed")
	waitUntil(t, func() error {
		code, text := sendRequest(t, cfg, "GET", "/apis/foot.example.com/v1/namespaces/default/shoes?limit=5", "")
		for _, want := range []string{`"user":"jane"`, `"path":"/apis/foot.example.com/v1/namespaces/default/shoes?limit=5"`, "system:authenticated", `"token":""`} {
			if code != 200 || !strings.Contains(text, want) {
				return fmt.Errorf("lacks %s: %d %s", want, code, text)
			}
		}
		return nil
	})
	checkAggregatedResponses(t, cfg, path)
	waitUntil(t, func() error {
		if code, text := sendRequest(t, cfg, "GET", "/apis/foot.example.com/v1/namespaces/default/shoes",
			""); code != 404 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

// checkAggregatedResponses checks proxied requests, and what discovery and OpenAPI say of the aggregated server. It
// removes the registration at the end.
func checkAggregatedResponses(t *testing.T, cfg *rest.Config, path string) {
	for _, c := range []struct {
		method, path, body, accept string
		code                       int
		want                       string
	}{
		{"POST", "/apis/foot.example.com/v1/namespaces/default/shoes", `{"kind":"Shoe"}`, "", 200, `"body":"{\"kind\":\"Shoe\"}"`},
		{"GET", "/apis/foot.example.com/v1", "", "", 200, `"name":"shoes/status"`},
		{"GET", "/apis/foot.example.com", "", "", 200, `"preferredVersion":{"groupVersion":"foot.example.com/v1"`},
		{"GET", "/apis", "", "", 200, `"name":"foot.example.com"`},
		{"GET", "/apis", "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", 200, `"resource":"shoes","responseKind":{"group":"foot.example.com","version":"v1","kind":"Shoe"},"scope":"Namespaced"`},
		{"GET", "/openapi/v3", "", "", 200, `"apis/foot.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/foot.example.com/v1?hash=77"}`},
		{"GET", "/openapi/v2", "", "", 200, `"/apis/foot.example.com/v1/shoes":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/com.example.foot.Shoe"}}}}}`},
		{"GET", "/openapi/v2", "", "", 200, `"com.example.foot.Shoe":{"properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2"}}`},
		{"GET", "/openapi/v2", "", "", 200, `"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2":{"description":"theirs"}`},
		{"GET", "/openapi/v3/apis/foot.example.com/v1", "", "", 200, `"title":"shoes"`},
		{"GET", path, "", "application/json;as=Table;v=v1;g=meta.k8s.io", 200, `"default/shoes","True"`},
		{"DELETE", path + "/v1.foot.example.com", "", "", 200, "Success"}, // an empty Upgrade header requests nothing
	} {
		if code, text := sendRequest(t, cfg, c.method, c.path, c.body, "Accept", c.accept); code != c.code ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s %s: %d lacks %s: %.600s", c.method, c.path, code, c.want, text)
		}
	}
}

// The APIService of a definition stays while the definition cannot be read. Readable definitions get APIServices
// nevertheless.
// Proves S12.
func TestAPIServicesOfUnreadableDefinitionsStay(t *testing.T) {
	s := stores["memory"](t)
	cfg := startConfig(t, s, nil)
	const path, definitions = "/apis/apiregistration.k8s.io/v1/apiservices",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	define := func(cfg *rest.Config, group string) {
		t.Helper()
		definition := `{"metadata":{"name":"tools.` + group + `"},"spec":{"group":"` + group + `","scope":"Cluster","names":{"plural":"tools","kind":"Tool"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
		if code, text := sendRequest(t, cfg, "POST", definitions, definition); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	contains := func(cfg *rest.Config, name string) {
		t.Helper()
		waitUntil(t, func() error {
			if code, text := sendRequest(t, cfg, "GET", path+"/"+name, ""); code != 200 {
				return fmt.Errorf("%s: %d %s", name, code, text)
			}
			return nil
		})
	}
	define(cfg, "shed.example.com")
	contains(cfg, "v1.shed.example.com")
	contains(cfg, "v1.batch")
	code, before := sendRequest(t, cfg, "GET", path+"/v1.shed.example.com", "")
	if code != 200 {
		t.Fatal(before)
	}
	storeUndecodable(t, s, "/registry/apiextensions.k8s.io/customresourcedefinitions/tools.shed.example.com",
		"nonsense")
	storeUndecodable(t, s, "/registry/apiregistration.k8s.io/apiservices/v1.apps", "nonsense")
	second := startConfig(t, s, nil)
	for i, cfg := range []*rest.Config{cfg, second} {
		group := fmt.Sprint("barn", i, ".example.com")
		define(cfg, group)
		contains(cfg, "v1."+group) // the server has processed all definitions by then
		if code, text := sendRequest(t, cfg, "DELETE", path+"/v1.batch", ""); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		contains(cfg, "v1.batch")
		if code, after := sendRequest(t, cfg, "GET", path+"/v1.shed.example.com", ""); code != 200 || after != before {
			t.Errorf("server %d: %d %s, was %s", i, code, after, before)
		}
	}
}

// Every group version that is served here has an APIService, also those of custom resources.
// Proves S12.
func TestServedGroupVersionsHaveAPIServices(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), func(*apiserver.Options) {})
	const path = "/apis/apiregistration.k8s.io/v1/apiservices"
	contains := func(name string, exists bool) {
		t.Helper()
		waitUntil(t, func() error {
			code, text := sendRequest(t, cfg, "GET", path+"/"+name, "")
			if exists != (code == 200) || exists && !strings.Contains(text, `"status":"True"`) {
				return fmt.Errorf("%s: %d %s", name, code, text)
			}
			return nil
		})
	}
	for _, name := range []string{"v1.", "v1.apps", "v2.autoscaling", "v1.rbac.authorization.k8s.io"} {
		contains(name, true)
	}
	contains("v1.apiregistration.k8s.io", false)
	if code, text := sendRequest(t, cfg, "DELETE", path+"/v1.apps", ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	contains("v1.apps", true)
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"tools.shed.example.com"},"spec":{"group":"shed.example.com","scope":"Cluster",
		"names":{"plural":"tools","kind":"Tool"},"versions":[{"name":"v1beta1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}},{"name":"v1","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	if code, text := sendRequest(t, cfg, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		definition); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	contains("v1beta1.shed.example.com", true)
	contains("v1.shed.example.com", false)
	if code, text := sendRequest(t, cfg, "DELETE",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tools.shed.example.com", ""); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	contains("v1beta1.shed.example.com", false)
}

// Once another server is registered for a group version, this server never answers for it, not even a request that
// arrived before.
// Proves S12.
func TestDocumentsOfAggregatedVersionsAreNotServedLocally(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), func(*apiserver.Options) {})
	for i := range 15 {
		group := fmt.Sprintf("g%d.example.com", i)
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				for range 2000 {
					code, text := sendRequest(t, cfg, "GET", "/apis/"+group+"/v1", "")
					if code == 503 {
						return
					}
					if code != 404 {
						t.Errorf("%d %s", code, text)
						return
					}
				}
				t.Error("it is never registered")
			})
		}
		registration := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.` + group + `"},"spec":{"group":"` + group + `","version":"v1","insecureSkipTLSVerify":true,"groupPriorityMinimum":100,"versionPriority":10,"service":{"namespace":"default","name":"none"}}}`
		if code, text := sendRequest(t, cfg, "POST", "/apis/apiregistration.k8s.io/v1/apiservices",
			registration); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
		asking.Wait()
	}
}
