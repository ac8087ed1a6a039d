package conformance

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
)

// serveKubelet starts a server in place of a node's kubelet. It answers with the properties of the request.
func serveKubelet(t *testing.T, ca certs.Pair, node string) *url.URL {
	t.Helper()
	leaf, err := certs.Issue(ca, certs.KubeletServer(node, nil), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/to/"):
			w.Header().Set("Access-Control-Allow-Origin", "*")
			http.Redirect(w, r, r.URL.Query().Get("at"), http.StatusFound)
		case r.Header.Get("Upgrade") == "echo":
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, buf)
		case r.URL.Path == "/page":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, `<p>%s</p><a href="/x?a=b">x</a><a href="y">y</a>`, r.Header.Get("X-Forwarded-Uri"))
		case strings.HasPrefix(r.URL.Path, "/escaped/"):
			fmt.Fprint(w, r.RequestURI)
		case r.URL.Path == "/teapot":
			w.WriteHeader(http.StatusTeapot)
		default:
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s %q %q", r.Method, r.URL.Path, r.URL.RawQuery, body,
				r.Header.Get("Authorization")+r.Header.Get("X-Remote-User"))
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func (c *client) createNode(t *testing.T, name string, kubelet *url.URL) {
	t.Helper()
	port, err := strconv.Atoi(kubelet.Port())
	if err != nil {
		t.Fatal(err)
	}
	c.mustAnswer(t, 201, post("/api/v1/nodes", object{"metadata": object{"name": name}}))
	c.mustAnswer(t, 200, patch("/api/v1/nodes/"+name+"/status", "merge-patch+json", object{"status": object{
		"addresses":       []any{object{"type": "InternalIP", "address": kubelet.Hostname()}},
		"daemonEndpoints": object{"kubeletEndpoint": object{"Port": port}},
	}}))
}

// A proxied request has the client's method, path, query and body, but not its credentials.
// Proves S11.
func TestNodesAreProxied(t *testing.T) {
	s := startServer(t, openStore(t))
	c := s.clientFor(t, certs.Admin())
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	kubelet := serveKubelet(t, s.ca, "n")
	c.createNode(t, "n", kubelet)
	const path = "/api/v1/nodes/n/proxy"
	for _, name := range []string{"n", "n:" + kubelet.Port(), "https:n:" + kubelet.Port()} {
		if a := c.mustAnswer(t, 200, get("/api/v1/nodes/%s/proxy/a//b?c=d&c=e", name)); string(
			a.raw,
		) != `GET /a//b c=d&c=e "" ""` {
			t.Errorf("%s: %s", name, a.raw)
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		a := c.mustAnswer(
			t,
			200,
			call{
				method: method,
				path:   path + "/x",
				body:   []byte("body"),
				header: http.Header{"X-Remote-User": {"root"}, "Authorization": {"Basic eDp5"}},
			},
		)
		if want := method + ` /x  "body" ""`; string(a.raw) != want {
			t.Errorf("%s, want %s", a.raw, want)
		}
	}
	if a := c.do(t, get("%s/teapot", path)); a.code != http.StatusTeapot {
		t.Errorf("another's refusal is %d", a.code)
	}
	if a := c.mustAnswer(t, 200, get("%s/page", path)); string(
		a.raw,
	) != `<p>`+path+`/page</p><a href="`+path+`/x?a=b">x</a><a href="y">y</a>` {
		t.Errorf("the page is %s", a.raw)
	}
	for _, escaped := range []string{"/escaped/a%2Fb/c%20d/", "/escaped/%2F%2f", "/escaped/a;b=c,d"} {
		if a := c.mustAnswer(t, 200, call{method: "GET", path: path + escaped + "?e=%2F"}); string(
			a.raw,
		) != escaped+"?e=%2F" {
			t.Errorf("%s is asked for as %s", escaped, a.raw)
		}
	}
	if a := c.mustAnswer(t, 301, get("%s?a=b", path)); a.header.Get("Location") != path+"/?a=b" {
		t.Errorf("without a slash it leads to %q", a.header.Get("Location"))
	}
	for at, want := range map[string]string{"/login": path + "/login", "https://" + kubelet.Host + "/login?a=b": path +
		"/login?a=b", "https://else.example.com/": "https://else.example.com/"} {
		a := c.mustAnswer(t, 302, get("%s/to/?at=%s", path, url.QueryEscape(at)))
		if a.header.Get("Location") != want || a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("a redirect to %s leads to %v, want %s", at, a.header, want)
		}
	}
	c.mustRefuse(t, get("/api/v1/nodes/none/proxy/"), 404, "NotFound", `nodes "none" not found`)
	c.mustRefuse(t, get("/api/v1/nodes/n:1/proxy/"), 400, "BadRequest", "address not allowed")
	c.mustRefuse(t, get("/api/v1/nodes/ftp:n:1/proxy/"), 400, "BadRequest", "invalid proxy request")
	c.mustAnswer(t, 201, post("/api/v1/nodes", object{"metadata": object{"name": "bare"}}))
	c.mustRefuse(t, get("/api/v1/nodes/bare/proxy/"), 503, "ServiceUnavailable", "no kubelet to ask")
	testUpgrade(t, s, path+"/up")
	anonymous := s.clientWith(t)
	anonymous.mustRefuse(t, get("%s/x", path), 401, "Unauthorized", "")
	ann := s.clientFor(t, certs.Request{CommonName: "ann"})
	ann.mustRefuse(t, get("%s/x", path), 403, "Forbidden", `cannot get resource "nodes/proxy"`)
	ann.mustRefuse(t, post(path+"/x", "{}"), 403, "Forbidden", `cannot create resource "nodes/proxy"`)
}

// testUpgrade upgrades a connection through the proxy, and checks that the data it sends comes back.
func testUpgrade(t *testing.T, s *server, path string) {
	t.Helper()
	c := s.clientFor(t, certs.Admin())
	config := c.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos, config.ServerName = []string{"http/1.1"}, "127.0.0.1"
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp",
		strings.TrimPrefix(s.url, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path)
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgraded: %+v %v", r, err)
	}
	fmt.Fprint(conn, "ping\n")
	if line, err := in.ReadString('\n'); line != "ping\n" {
		t.Errorf("%q came back: %v", line, err)
	}
}

// A target that cannot be proxied to gives an error, and no request reaches this machine's own addresses.
// Proves S11.
func TestInvalidProxyTargetsAreRejected(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "proxy")
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	path, _ := createPod(t, c, "proxy", "p")
	if a := c.mustAnswer(t, 301, get("%s/proxy", path)); a.header.Get("Location") != path+"/proxy/" {
		t.Errorf("without a slash it leads to %q", a.header.Get("Location"))
	}
	c.mustRefuse(t, get("%s/proxy/", path), 503, "ServiceUnavailable", "the pod has no address yet")
	c.mustRefuse(t, get("%s-not/proxy/", path), 404, "NotFound", `pods "p-not" not found`)
	for _, ip := range []string{"127.0.0.1", "169.254.169.254", "::1"} {
		c.mustAnswer(t, 200, patch(path+"/status", "merge-patch+json",
			object{"status": object{"podIP": ip, "podIPs": []any{object{"ip": ip}}}}))
		c.mustRefuse(t, get("%s/proxy/", path), 400, "BadRequest", "address not allowed")
		c.mustRefuse(t, get("%s:8080/proxy/x", path), 400, "BadRequest", "address not allowed")
	}
	service := "/api/v1/namespaces/proxy/services"
	c.mustAnswer(
		t,
		201,
		post(
			service,
			object{
				"metadata": object{"name": "s"},
				"spec": object{
					"ports": []any{object{"name": "http", "port": 80}, object{"name": "other", "port": 81}},
				},
			},
		),
	)
	c.mustRefuse(t, get("%s/s/proxy/", service), 503, "ServiceUnavailable", "no service port")
	c.mustRefuse(t, get("%s/s:none/proxy/", service), 503, "ServiceUnavailable",
		`no service port "none" found for service "s"`)
	for _, name := range []string{"s:http", "s:80", "https:s:other", "http:s:81"} {
		c.mustRefuse(t, get("%s/%s/proxy/a", service, name), 503, "ServiceUnavailable",
			`no endpoints available for service "s"`)
	}
	c.mustRefuse(t, get("%s/none:80/proxy/", service), 404, "NotFound", `services "none" not found`)
	slice := object{
		"metadata":    object{"name": "s-1", "labels": object{"kubernetes.io/service-name": "s"}},
		"addressType": "IPv4",
		"ports":       []any{object{"name": "http", "port": 8080}},
		"endpoints":   []any{object{"addresses": []any{"10.0.0.1"}, "conditions": object{"ready": false}}},
	}
	c.mustAnswer(t, 201, post("/apis/discovery.k8s.io/v1/namespaces/proxy/endpointslices", slice))
	c.mustRefuse(t, get("%s/s:http/proxy/", service), 503, "ServiceUnavailable", "no endpoints available")
}

// Invalid streams into a pod are refused as upstream does, before any connection.
// Proves S11.
func TestImpossibleStreamsAreRejected(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "streams")
	path, _ := createPod(t, c, "streams", "p")
	for _, sub := range []string{"exec", "attach", "portforward"} {
		c.mustRefuse(t, post(path+"/"+sub+"?command=a&stdout=true", nil), 400, "BadRequest",
			"pod p does not have a host assigned")
		c.mustRefuse(t, post(path+"-not/"+sub, nil), 404, "NotFound", `pods "p-not" not found`)
		c.mustRefuse(t, put(path+"/"+sub, "{}"), 405, "MethodNotAllowed", "")
		c.mustRefuse(t, remove(path+"/"+sub, nil), 405, "MethodNotAllowed", "")
	}
	for _, sub := range []string{"exec", "attach"} {
		c.mustRefuse(t, post(path+"/"+sub+"?container=x&command=a", nil), 400, "BadRequest",
			"container x is not valid for pod p")
	}
	c.mustRefuse(t, get("%s/log?container=x", path), 400, "BadRequest", "container x is not valid for pod p")
	two := "/api/v1/namespaces/streams/pods"
	c.mustAnswer(
		t,
		201,
		post(
			two,
			object{
				"metadata": object{"name": "two"},
				"spec": object{
					"containers": []any{object{"name": "a", "image": "i"}, object{"name": "b", "image": "i"}},
				},
			},
		),
	)
	c.mustRefuse(t, post(two+"/two/exec?command=a", nil), 400, "BadRequest",
		"a container name must be specified for pod two, choose one of: [a b]")
	c.mustAnswer(t, 201, post(path+"/binding",
		object{"metadata": object{"name": "p"}, "target": object{"kind": "Node", "name": "gone"}}))
	c.mustRefuse(t, post(path+"/exec?command=a", nil), 404, "NotFound", `nodes "gone" not found`)
}
