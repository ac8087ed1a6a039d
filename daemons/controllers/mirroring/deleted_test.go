package mirroring

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes"
)

// Slices are deleted only when the API server confirms that the Endpoints or the service are gone.
func TestSlicesAreDeletedOnlyIfTheServerConfirmsTheirSourceIsGone(t *testing.T) {
	const missing, broken = http.StatusNotFound, http.StatusInternalServerError
	for name, c := range map[string]struct {
		endpoints, service int // status codes of the server
		deleted            int
		fails              bool
	}{
		"no Endpoints":                 {missing, http.StatusOK, 1, false},
		"no service":                   {http.StatusOK, missing, 1, false},
		"both are there":               {http.StatusOK, http.StatusOK, 0, false},
		"the Endpoints cannot be read": {broken, http.StatusOK, 0, true},
		"the service cannot be read":   {http.StatusOK, broken, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			mirrored := apply(nil, Mirror(newEndpoints(subset(80, "192.0.2.1")), nil), new(int))[0]
			deleted := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				code, body := c.service, `{"kind":"Service","apiVersion":"v1","metadata":{"name":"legacy","namespace":"shop"}}`
				switch {
				case r.Method == http.MethodDelete:
					deleted++
					code, body = http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
				case strings.Contains(r.URL.Path, "/endpoints/"):
					code, body = c.endpoints, `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"legacy","namespace":"shop","uid":"e"},`+
						`"subsets":[{"addresses":[{"ip":"192.0.2.1"}],"ports":[{"name":"http","port":80,"protocol":"TCP"}]}]}`
				}
				kind := "services"
				if strings.Contains(r.URL.Path, "/endpoints/") {
					kind = "endpoints"
				}
				if w.WriteHeader(code); code == missing {
					body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"legacy","kind":"` + kind + `"}}`
				}
				_, _ = io.WriteString(w, body)
			}))
			defer server.Close()
			empty := func() cache.Indexer {
				return cache.NewIndexer(cache.MetaNamespaceKeyFunc,
					cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			}
			slices := empty()
			if err := slices.Add(mirrored); err != nil {
				t.Fatal(err)
			}
			m := &controller{
				Context:  loop.Context{Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})},
				services: corelisters.NewServiceLister(empty()), endpoints: corelisters.NewEndpointsLister(empty()),
				slices: discoverylisters.NewEndpointSliceLister(slices), expect: loop.Expectations{Now: time.Now},
			}
			m.counts = newCounts(m.Context, m.slices)
			if err := m.sync(t.Context(), "shop/legacy"); (err != nil) != c.fails || deleted != c.deleted {
				t.Errorf("%d deleted, %v", deleted, err)
			}
		})
	}
}

// If no slices would be deleted, the cache alone decides.
func TestUnchangedMirrorsNeedNoRequests(t *testing.T) {
	endpoints := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	m := &controller{
		services:  corelisters.NewServiceLister(endpoints),
		endpoints: corelisters.NewEndpointsLister(endpoints),
	}
	if e, mirrored, err := m.source(t.Context(), "shop", "legacy", false); e != nil || mirrored || err != nil {
		t.Error(fmt.Sprint(e), mirrored, err)
	}
}
