package request_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/request"
	"clusterctl/daemons/apiserver/wire"
	"clusterctl/daemons/kinds"
)

// builtIn serves the built-in kinds.
type builtIn struct{}

func (builtIn) Target(gvr schema.GroupVersionResource) request.Target {
	for _, k := range kinds.All() {
		if k.GVR() == gvr {
			return request.Target{Served: wire.Served{Kind: k}, IsServed: true}
		}
	}
	return request.Target{}
}

func (builtIn) Aggregated(schema.GroupVersion) request.Handler { return nil }

func (builtIn) AggregatedDocument(string) request.Handler { return nil }

func TestPathsNameResourcesAndVerbs(t *testing.T) {
	for path, want := range map[string]struct{ verb, resource, namespace, name, subresource, proxyPath string }{
		"GET /api/v1/pods":                                     {"list", "pods", "", "", "", ""},
		"GET /api/v1/pods?watch=1":                             {"watch", "pods", "", "", "", ""},
		"GET /api/v1/watch/namespaces/a/pods/p":                {"watch", "pods", "a", "p", "", ""},
		"GET /api/v1/pods?fieldSelector=metadata.name%3Dp":     {"list", "pods", "", "p", "", ""},
		"POST /api/v1/namespaces/a/pods/p/binding":             {"create", "pods", "a", "p", "binding", ""},
		"PUT /api/v1/namespaces/a":                             {"update", "namespaces", "a", "a", "", ""},
		"PUT /api/v1/namespaces/a/finalize":                    {"update", "namespaces", "a", "a", "finalize", ""},
		"PATCH /apis/apps/v1/namespaces/a/deployments/d/scale": {"patch", "deployments", "a", "d", "scale", ""},
		"DELETE /apis/apps/v1/namespaces/a/deployments":        {"deletecollection", "deployments", "a", "", "", ""},
		"DELETE /apis/apps/v1/namespaces/a/deployments/d":      {"delete", "deployments", "a", "d", "", ""},
		"GET /api/v1/namespaces/a/services/s/proxy/x/y":        {"get", "services", "a", "s", "proxy", "/x/y"},
		"GET /api/v1/namespaces/a/services/s/proxy/":           {"get", "services", "a", "s", "proxy", "/"},
		"GET /healthz": {"get", "", "", "", "", ""},
	} {
		method, url, _ := strings.Cut(path, " ")
		q := request.Parse(httptest.NewRecorder(), httptest.NewRequest(method, url, nil), builtIn{})
		if q.Verb != want.verb || q.GroupVersionResource.Resource != want.resource || q.Namespace != want.namespace ||
			q.Name != want.name || q.Subresource != want.subresource || q.ProxyPath != want.proxyPath ||
			q.Resource != (want.resource != "") || q.Resource && !q.IsServed {
			t.Errorf("%s: %+v below %q", path, q.Request, q.ProxyPath)
		}
	}
}

func TestCopiesOfARequestShareItsAnswer(t *testing.T) {
	w := httptest.NewRecorder()
	q := request.Parse(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/a/pods/p", nil), builtIn{})
	nodes := builtIn{}.Target(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	one := q.WithObject("b", "o").WithTarget(nodes, "status", "", "n")
	if q.Namespace != "a" || q.Name != "p" || q.Served.Resource != "pods" {
		t.Errorf("the request became %+v", q.Request)
	}
	if one.Name != "n" || one.Subresource != "status" || one.GroupVersionResource.Resource != "nodes" {
		t.Errorf("the copy is %+v", one.Request)
	}
	one.Answer.Warn("careful")
	q.Answer.Warn("careful")
	one.Answer.WriteHeader(http.StatusTeapot)
	if got := w.Header().Values("Warning"); len(got) != 1 || q.Answer.Code() != http.StatusTeapot {
		t.Errorf("warnings %q, status %d", got, q.Answer.Code())
	}
}

func TestAnAnswerEndsInReverseOrder(t *testing.T) {
	var a request.Answer
	var order []int
	for i := range 3 {
		a.OnEnd(func() { order = append(order, i) })
	}
	a.End()
	if !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("ended in the order %v", order)
	}
}

func TestARequestThatTimedOutBecomesNoStream(t *testing.T) {
	q := request.Parse(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil), builtIn{})
	q.Answer.BecomeStream() // it cannot become one
	allowed := false
	q.Answer.OnStream(func() bool { return allowed })
	if q.Answer.BecomeStream(); q.IsLongRunning() {
		t.Error("it became a stream after its time")
	}
	allowed = true
	if q.Answer.BecomeStream(); !q.IsLongRunning() {
		t.Error("it became no stream")
	}
}
