package dashboard_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/dashboard"
)

func TestProxyReplacesTheCredentialsOfTheBrowser(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	b := w.signInByToken(readerToken)
	got := b.do(http.MethodGet, "/k8s/api/v1/namespaces?limit=1", "", set("Authorization", "Bearer "+adminToken),
		set("Impersonate-User", "admin"), set("Impersonate-Group", "system:masters"), set("X-Remote-User", "admin"),
		set("Impersonate-Extra-Scopes", "x"), set("X-Forwarded-For", "192.0.2.1"), set("Forwarded", "for=192.0.2.1"),
		set("Proxy-Authorization", "Basic eDp5"))
	if got.StatusCode != http.StatusOK || !strings.Contains(got.text, "NamespaceList") {
		t.Fatalf("%s %s", got.Status, got.text)
	}
	sent := w.users.last()
	if sent.Get("Authorization") != "Bearer "+readerToken || sent.Get("User-Agent") != "clusterctl-dashboard" {
		t.Errorf("the API server got %v", sent)
	}
	for name := range sent {
		if name == "Cookie" || strings.HasPrefix(name, "Impersonate") || strings.Contains(name, "Forwarded") ||
			strings.HasPrefix(name, "X-") || name == "Proxy-Authorization" || name == "Origin" {
			t.Errorf("the API server got the header %s", name)
		}
	}
}

func TestProxyForwardsOnlyTheKubernetesAPI(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.signInByCode()
	for _, path := range []string{"/k8s/metrics", "/k8s/", "/k8s/healthz", "/k8s/logs/x", "/k8s/debug/pprof/",
		"/k8s/api/../metrics", "/k8s/api/%2e%2e/metrics", "/k8s/api/..%2fmetrics", "/k8s/api/.%2e/metrics",
		"/k8s//api/v1/pods", "/k8s/api//v1", "/k8s/api/v1/%5c..%5c..", "/k8s/apix", "/k8s/api%2f..%2f..%2fmetrics",
		"/k8s/api/v1/namespaces/a/pods/b/proxy", "/k8s/api/v1/namespaces/a/pods/b/proxy/x",
		"/k8s/api/v1/namespaces/a/services/b:80/proxy/", "/k8s/api/v1/nodes/n/proxy/logs/",
		"/k8s/api/v1/namespaces/a/pods/b%2fproxy/x", "/k8s/api/v1/proxy/namespaces/a/pods/b"} {
		got := b.do(http.MethodGet, path, "")
		if got.StatusCode == http.StatusOK || strings.Contains(got.text, "go_goroutines") {
			t.Errorf("%s: %s %.100s", path, got.Status, got.text)
		}
	}
	for _, path := range []string{"/k8s/api", "/k8s/apis", "/k8s/version", "/k8s/openapi/v3", "/k8s/readyz",
		"/k8s/api/v1/pods", "/k8s/apis/apps/v1/deployments"} {
		if got := b.do(http.MethodGet, path, ""); got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %.100s", path, got.Status, got.text)
		}
	}
}

func TestProxyLimitsBodies(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.signInByCode()
	large := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` +
		strings.Repeat("x", 3<<20) + `"}}`
	json := set("Content-Type", "application/json")
	chunked := func(r *http.Request) {
		r.ContentLength, r.Body = -1, io.NopCloser(strings.NewReader(large))
	}
	for name, change := range map[string]func(*http.Request){"with a length": json, "without a length": chunked} {
		got := b.do(http.MethodPost, configMaps, large, json, change)
		if got.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(got.text, `"kind":"Status"`) {
			t.Errorf("a body of more than 3 MiB %s: %s %.100s", name, got.Status, got.text)
		}
	}
}

// hostileServer answers like an API server whose answers a user controls.
func hostileServer(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"status":{"userInfo":{"username":"a"}}}`) // the client may be gone
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html")
		h.Set("Set-Cookie", "clusterctl-dashboard-1=chosen")
		h.Set("Content-Security-Policy", "script-src *")
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Location", "https://evil.example")
		h.Set("Refresh", "0;url=https://evil.example")
		h.Set("X-Frame-Options", "ALLOWALL")
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, "<script>alert(1)</script>") // the client may be gone
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func TestAnswersOfTheAPIServerCannotBecomePages(t *testing.T) {
	w := &world{t: t, log: &syncBuffer{}}
	w.serve(hostileServer(t), dashboard.SignInByCommand)
	b := w.signInByCode()
	got := b.do(http.MethodGet, "/k8s/apis/hostile.example/v1/things", "")
	for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Location", "Refresh"} {
		if got.Header.Get(name) != "" {
			t.Errorf("the answer has %s: %s", name, got.Header.Get(name))
		}
	}
	if kind := got.Header.Get("Content-Type"); kind != "application/octet-stream" {
		t.Errorf("the answer has the type %s", kind)
	}
	if policies := got.Header.Values("Content-Security-Policy"); len(policies) != 1 ||
		strings.Contains(policies[0], "*") {
		t.Errorf("the answer has the policies %q", policies)
	}
	if values := got.Header.Values("X-Frame-Options"); len(values) != 1 || values[0] != "DENY" {
		t.Errorf("X-Frame-Options: %q", values)
	}
}

// upgradingServer accepts WebSockets and echoes. It records the headers of the last request.
func upgradingServer(t *testing.T, seen chan<- http.Header) *rest.Config {
	t.Helper()
	upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			_, _ = io.WriteString(w, `{"status":{"userInfo":{"username":"a"}}}`) // the client may be gone
			return
		}
		seen <- r.Header.Clone()
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, text, err := conn.ReadMessage()
			if err != nil || conn.WriteMessage(kind, text) != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, BearerToken: adminToken,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// dial opens a WebSocket with the browser's cookie.
func (b *browser) dial(path string, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	b.w.t.Helper()
	if header.Get("Origin") == "" {
		header.Set("Origin", b.w.url)
	}
	if c := b.cookie(); c != nil {
		header.Set("Cookie", c.Name+"="+c.Value)
	}
	dialer := websocket.Dialer{Subprotocols: protocols}
	conn, answer, err := dialer.DialContext(b.w.t.Context(), strings.Replace(b.w.url, "http:", "ws:", 1)+path, header)
	if err == nil {
		b.w.t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, answer, err
}

const execPath = "/k8s/api/v1/namespaces/a/pods/b/exec?command=sh"

func TestProxyUpgradesConnectionsUntilTheSessionEnds(t *testing.T) {
	w := &world{t: t, log: &syncBuffer{}}
	seen := make(chan http.Header, 1)
	w.serve(upgradingServer(t, seen), dashboard.SignInByCommand)
	b := w.signInByCode()
	conn, answer, err := b.dial(execPath, http.Header{}, "v5.channel.k8s.io",
		"base64url.bearer.authorization.k8s.io.dG9rZW4")
	if err != nil {
		t.Fatal(err)
	}
	if p := answer.Header.Get("Sec-Websocket-Protocol"); p != "v5.channel.k8s.io" {
		t.Errorf("the protocol is %q", p)
	}
	sent := <-seen
	if sent.Get("Cookie") != "" || sent.Get("Authorization") != "Bearer "+adminToken ||
		sent.Get("Sec-Websocket-Protocol") != "v5.channel.k8s.io" || sent.Get("Origin") != "" {
		t.Errorf("the API server got %v", sent)
	}
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := conn.ReadMessage(); err != nil || string(text) != "hello" {
		t.Errorf("the echo is %q, %v", text, err)
	}
	if got := b.do(http.MethodPost, "/signout", ""); got.StatusCode != http.StatusNoContent {
		t.Fatalf("sign out: %s", got.Status)
	}
	if _, _, err := conn.ReadMessage(); err == nil {
		t.Error("the connection is open after signing out")
	}
}

func TestWebSocketsNeedTheOriginOfThePage(t *testing.T) {
	w := &world{t: t, log: &syncBuffer{}}
	w.serve(upgradingServer(t, make(chan http.Header, 1)), dashboard.SignInByCommand)
	b := w.signInByCode()
	for _, path := range []string{execPath, "/api/live"} {
		for _, origin := range []string{"http://evil.example", "null", "http://127.0.0.1:1", w.url + ".evil.example"} {
			_, answer, err := b.dial(path, http.Header{"Origin": {origin}})
			if err == nil || answer == nil || answer.StatusCode != http.StatusForbidden {
				t.Errorf("%s from %s: %v, %v", path, origin, answer, err)
			}
		}
		if code := rawUpgrade(t, b, path); code != http.StatusForbidden {
			t.Errorf("%s without an origin: %d", path, code)
		}
	}
	if _, answer, err := w.browser().dial("/api/live", http.Header{}); err == nil ||
		answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %v", err)
	}
}

// rawUpgrade returns the status of the answer to an upgrade without an Origin header.
func rawUpgrade(t *testing.T, b *browser, path string) int {
	t.Helper()
	host := strings.TrimPrefix(b.w.url, "http://")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, b.w.url+path, nil)
	r.AddCookie(b.cookie())
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		r.Header.Set(name, value)
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, len("HTTP/1.1 403"))
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	if string(head[:9]) != "HTTP/1.1 " {
		t.Fatalf("the answer begins with %q", head)
	}
	return int(head[9]-'0')*100 + int(head[10]-'0')*10 + int(head[11]-'0')
}
