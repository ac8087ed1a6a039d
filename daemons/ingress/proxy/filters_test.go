package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"clusterctl/daemons/ingress/route"
)

// setRule makes all entries serve one listener with a rule.
func (p *testProxy) setRule(rule *route.Rule) {
	if rule.Policy == nil {
		rule.Policy = &route.Policy{
			Connect:  5 * time.Second,
			Read:     10 * time.Second,
			Send:     10 * time.Second,
			Protocol: route.HTTP,
		}
	}
	l := (&route.Listener{Hostname: "a.example"}).WithHosts(
		map[string][]route.PathRule{"a.example": {{Path: "/shop", Rule: rule}}},
	)
	for _, at := range p.entries {
		at.SetTable((&route.Table{}).WithListeners([]*route.Listener{l}))
	}
}

// backendOf returns a backend with the addresses of servers.
func (p *testProxy) backendOf(name string, servers ...*httptest.Server) *route.Backend {
	var list []string
	for _, s := range servers {
		list = append(list, s.Listener.Addr().String())
	}
	return p.backendAt(name, list...)
}

// backendAt returns a backend with addresses.
func (p *testProxy) backendAt(name string, addresses ...string) *route.Backend {
	key := route.BackendKey{Service: route.Key{Namespace: "default", Name: name}, Port: "80", Protocol: route.HTTP}
	b := &route.Backend{Key: key, Targets: p.e.Targets(key)}
	setEndpoints(b, addresses...)
	return b
}

// setEndpoints sets the endpoints of a backend.
func setEndpoints(b *route.Backend, addresses ...string) {
	var list []netip.AddrPort
	for _, a := range addresses {
		list = append(list, netip.MustParseAddrPort(a))
	}
	b.Targets.Update(list)
}

// requestFuncs returns functions that send a request, by version of HTTP.
func (p *testProxy) requestFuncs() map[string]func(path string, header http.Header) (*http.Response, error) {
	out := map[string]func(string, http.Header) (*http.Response, error){}
	for _, two := range []bool{false, true} {
		var protocols http.Protocols
		protocols.SetHTTP1(!two)
		protocols.SetUnencryptedHTTP2(two)
		c := &http.Client{
			Transport:     &http.Transport{Protocols: &protocols},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		p.t.Cleanup(c.CloseIdleConnections)
		name := "HTTP/1.1"
		if two {
			name = "HTTP/2"
		}
		out[name] = func(path string, header http.Header) (*http.Response, error) {
			r, err := http.NewRequest(http.MethodGet, "http://"+p.plain.Addr().String()+path, nil)
			if err != nil {
				return nil, err
			}
			r.Host, r.Header = "a.example", header
			return c.Do(r)
		}
	}
	return out
}

// Filters change heads, paths and hosts in both versions of HTTP.
// Proves S32.
func TestFiltersChangeRequestsAndResponses(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Set"], w.Header()["X-Gone"], w.Header()["X-More"] = []string{
			"old",
		}, []string{
			"old",
		}, []string{
			"first",
		}
		fmt.Fprint(w, r.Host, " ", r.RequestURI, " ", r.Header["X-Set"], r.Header["X-More"], r.Header["X-Gone"])
	}))
	defer pod.Close()
	changes := &route.Headers{
		Set:    []route.Pair{{Name: "x-set", Value: "new"}},
		Add:    []route.Pair{{Name: "x-more", Value: "second"}},
		Remove: []string{"x-gone"},
	}
	for name, c := range map[string]struct {
		filters   route.Filters
		own       *route.Headers // of the backend
		path, got string
	}{
		"none": {path: "/shop/a", got: "a.example /shop/a [old] [first] [old]"},
		"heads": {route.Filters{Request: changes, Response: changes}, nil, "/shop", "a.example /shop [new] " +
			"[first second] []"},
		"of backend": {route.Filters{Request: changes},
			&route.Headers{Set: []route.Pair{{Name: "X-Set", Value: "own"}}}, "/shop", "a.example /shop [own] " +
				"[first] [old]"},
		"full path": {route.Filters{Rewrite: &route.Rewrite{Path: "/x"}}, nil, "/shop/a?b=c", "a.example /x?b=c " +
			"[old] [first] [old]"},
		"prefix": {route.Filters{Rewrite: &route.Rewrite{Prefix: &route.Swap{From: "/shop", To: "/y"}}}, nil,
			"/shop/a?b=c", "a.example /y/a?b=c [old] [first] [old]"},
		"no prefix": {route.Filters{Rewrite: &route.Rewrite{Prefix: &route.Swap{From: "/shop"}}}, nil, "/shop",
			"a.example / [old] [first] [old]"},
		"encoded": {route.Filters{Rewrite: &route.Rewrite{Prefix: &route.Swap{From: "/shop", To: "/y"}}}, nil,
			"/%73hop/a%20b", "a.example /y/a%20b [old] [first] [old]"},
		"host": {route.Filters{Rewrite: &route.Rewrite{Host: "b.example"}}, nil, "/shop", "b.example /shop " +
			"[old] [first] [old]"},
	} {
		p := startProxy(t, nil)
		p.setRule(
			&route.Rule{
				Filters:  c.filters,
				Backends: []route.Weighted{{Backend: p.backendOf("web", pod), Weight: 1, Request: c.own}},
			},
		)
		for version, get := range p.requestFuncs() {
			res, err := get(c.path, http.Header{"X-Set": {"old"}, "X-More": {"first"}, "X-Gone": {"old"}})
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if string(text) != c.got {
				t.Errorf("%s, %s: %s, want %s", name, version, text, c.got)
			}
			heads := fmt.Sprint(res.Header["X-Set"], res.Header["X-More"], res.Header["X-Gone"])
			if want := map[bool]string{true: "[new] [first second] []",
				false: "[old] [first] [old]"}[c.filters.Response != nil]; heads != want {
				t.Errorf("%s, %s: the client got %s, want %s", name, version, heads, want)
			}
		}
	}
}

func TestRedirectsKeepThePartsThatTheyDoNotSet(t *testing.T) {
	for want, r := range map[string]route.Redirect{
		"http://b.example/shop/a?b=c":    {Host: "b.example"},
		"https://a.example/shop/a?b=c":   {Scheme: "https"},
		"http://a.example:81/shop/a?b=c": {Port: 81},
		"http://a.example/x?b=c":         {Path: "/x"},
		"http://a.example/y/a?b=c":       {Prefix: &route.Swap{From: "/shop", To: "/y"}},
	} {
		p := startProxy(t, nil)
		r.Code = 307
		p.setRule(&route.Rule{Filters: route.Filters{Redirect: &r}})
		for version, get := range p.requestFuncs() {
			res, err := get("/shop/a?b=c", nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if got := res.Header.Get("Location"); got != want || res.StatusCode != 307 {
				t.Errorf("%s: %d %s, want %s", version, res.StatusCode, got, want)
			}
		}
	}
}

// Requests are distributed by weight. The share of a missing backend fails.
// Proves S32.
func TestBackendsGetRequestsByWeight(t *testing.T) {
	var counts [2]atomic.Int64
	var pods []*httptest.Server
	for i := range counts {
		s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { counts[i].Add(1) }))
		defer s.Close()
		pods = append(pods, s)
	}
	p := startProxy(t, nil)
	p.setRule(
		&route.Rule{
			Missing: 500,
			Backends: []route.Weighted{
				{Backend: p.backendOf("a", pods[0]), Weight: 6},
				{Backend: p.backendOf("b", pods[1]), Weight: 2},
				{Weight: 2},
				{Backend: p.backendOf("c"), Weight: 0},
			},
		},
	)
	const each = 1000
	var failed, all int64
	for version, get := range p.requestFuncs() {
		for range each {
			res, err := get("/shop", nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			switch all++; res.StatusCode {
			case 500:
				failed++
			case 200:
			default:
				t.Fatal(version, res.Status)
			}
		}
	}
	for name, c := range map[string]struct{ got, of int64 }{"a": {counts[0].Load(), 6}, "b": {counts[1].Load(), 2},
		"the one that is not there": {failed, 2}} {
		if share := float64(c.got) / float64(all); share < 0.1*float64(c.of)-0.06 || share > 0.1*float64(c.of)+0.06 {
			t.Errorf("%s got %d of %d requests", name, c.got, all)
		}
	}
}

// Proves S32.
func TestARequestEndsAtTheTimeoutOfItsRule(t *testing.T) {
	done := make(chan struct{})
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	defer pod.Close()
	defer close(done)
	p := startProxy(t, nil)
	p.setRule(&route.Rule{
		Policy: &route.Policy{
			Connect:  5 * time.Second,
			Read:     time.Minute,
			Send:     10 * time.Second,
			Total:    50 * time.Millisecond,
			Protocol: route.HTTP,
		},
		Backends: []route.Weighted{{Backend: p.backendOf("web", pod), Weight: 1}},
	})
	for version, get := range p.requestFuncs() {
		start := time.Now()
		res, err := get("/shop", nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if took := time.Since(start); res.StatusCode != 504 || took > 5*time.Second {
			t.Errorf("%s: %s after %s", version, res.Status, took)
		}
	}
}
