package apiserver_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
)

var fuzzMethods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}

// FuzzRequest sends whole requests to a server, which must answer each without an internal error.
func FuzzRequest(f *testing.F) {
	const pods = "/api/v1/namespaces/default/pods"
	pod := `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	for _, r := range []struct {
		method                          uint8
		path, contentType, accept, body string
	}{
		{1, pods, "application/json", "", pod},
		{0, pods + "?limit=1&labelSelector=a", "", "application/json;as=Table;v=v1;g=meta.k8s.io", ""},
		{0, pods + "/a?resourceVersion=1", "", "application/cbor", ""},
		{3, pods + "/a?fieldManager=m&force=true", "application/apply-patch+yaml", "", `{"apiVersion":"v1","kind":"Pod",` + pod[1:]},
		{3, pods + "/a", "application/strategic-merge-patch+json", "application/yaml", `{"spec":{"containers":[{"name":"c","image":"j"}]}}`},
		{3, pods + "/a", "application/json-patch+json", "", `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`},
		{3, pods + "/a/status", "application/merge-patch+json", "", `{"status":{"phase":"Running"}}`},
		{3, pods + "/a/ephemeralcontainers", "application/strategic-merge-patch+json", "", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`},
		{3, pods + "/a/resize", "application/strategic-merge-patch+json", "", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}}`},
		{1, pods + "/a/eviction", "application/json", "", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`},
		{1, pods + "/a/binding", "application/json", "", `{"target":{"name":"n"}}`},
		{4, pods + "/a?gracePeriodSeconds=0", "application/json", "", `{"preconditions":{"uid":"x"},"propagationPolicy":"Foreground"}`},
		{4, pods + "?labelSelector=a", "", "", ""},
		{2, "/apis/apps/v1/namespaces/default/deployments/d/scale", "application/json", "", `{"spec":{"replicas":2}}`},
		{1, "/apis/apps/v1/namespaces/default/deployments", "application/yaml", "", "metadata: {name: d}\nspec: " +
			"{selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, " +
			"image: i}]}}}"},
		{0, "/openapi/v3/api/v1", "", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", ""},
		{0, "/apis", "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", ""},
		{1, "/api/v1/namespaces/default/bindings", "application/json", "", `{"metadata":{"name":"a"},"target":{"name":"n"}}`},
		{2, "/api/v1/namespaces/default/finalize", "application/json", "", `{"metadata":{"name":"default"},"spec":{"finalizers":["kubernetes"]}}`},
	} {
		f.Add(r.method, r.path, r.contentType, r.accept, []byte(r.body))
	}
	server := startFuzzedServer(f)
	f.Fuzz(func(t *testing.T, method uint8, path, contentType, accept string, body []byte) {
		u, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(u.Path, "/") || u.Host != "" {
			return
		}
		q := u.Query()
		if q.Has("watch") {
			q.Set("timeoutSeconds", "0.001") // a watch ends at once, because nothing else would end it
		}
		if v := q.Get("resourceVersion"); len(v) > 2 {
			q.Del("resourceVersion") // the server would wait for future versions
		}
		u.RawQuery = q.Encode()
		r := &http.Request{
			Method: fuzzMethods[int(method)%len(fuzzMethods)],
			URL:    u,
			Header: http.Header{},
			Host:   "x",
			Body:   http.NoBody,
		}
		if len(body) > 0 {
			r = httptest.NewRequest(r.Method, "/", strings.NewReader(string(body)))
			r.URL = u
		}
		r.Header["Content-Type"], r.Header["Accept"] = []string{contentType}, []string{accept}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		rec := httptest.NewRecorder()
		server.ServeHTTP(rec, r.WithContext(ctx))
		if rec.Code == http.StatusInternalServerError {
			t.Errorf("%s %s: %d %s", r.Method, u, rec.Code, rec.Body)
		}
	})
}

// startFuzzedServer starts a server with an empty store.
func startFuzzedServer(f *testing.F) *apiserver.Server {
	s := memory.New()
	f.Cleanup(s.Close)
	o := apiserver.Options{
		Storage:   apiserver.OpenStorage(s, "", kinds.All(), slog.New(slog.DiscardHandler)),
		Env:       run.NewEnv(slog.New(slog.DiscardHandler)),
		Addresses: apiserver.Addresses{ServiceClusterIPRange: []string{"10.96.0.0/16"}},
	}
	server, err := apiserver.New(o)
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			f.Error(err)
		}
	})
	waitUntil(f, func() error { return o.Env.Health.Err(true) })
	return server
}
