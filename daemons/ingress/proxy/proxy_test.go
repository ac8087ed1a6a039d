package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
	"clusterctl/daemons/ingress/route"
	"clusterctl/tests/tools/amount"
)

// testProxy is an engine under test with its listeners and a builder of its table.
type testProxy struct {
	t             testing.TB
	e             *Engine
	b             *route.Builder
	plain, secure net.Listener
	serving       sync.WaitGroup
	entries       []*Entry
	roots         *x509.CertPool
}

func certificate(t testing.TB, names ...string) (*tls.Certificate, *x509.CertPool) {
	ca, err := certs.NewCA("test", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.Issue(ca,
		certs.Request{CommonName: names[0], Hosts: names, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	return &cert, roots
}

func startProxy(t testing.TB, change func(*Config)) *testProxy {
	cert, roots := certificate(t, "a.example", "b.example")
	cfg := Config{
		Log: slog.New(
			slog.DiscardHandler,
		), DefaultCert: cert, MaxHead: 32 << 10, HeadTime: 10 * time.Second, Idle: time.Minute,
		UpstreamIdle: time.Minute,
		MaxIdle:      64,
		HTTPSPort:    443, MinTLS: tls.VersionTLS12, MaxStreams: 128, HandshakeTime: 10 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	p := &testProxy{t: t, e: New(cfg), roots: roots}
	p.b = route.NewBuilder(route.Options{
		Policy: route.Policy{
			Connect:     5 * time.Second,
			Read:        10 * time.Second,
			Send:        10 * time.Second,
			Protocol:    route.HTTP,
			RedirectTLS: true,
		},
		Targets: p.e.Targets, Counter: p.e.Counter,
	})
	p.b.SetClass("c", &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: route.Controller}})
	for _, at := range []struct {
		ln    *net.Listener
		entry *Entry
	}{{&p.plain, p.e.Open(false, 80)}, {&p.secure, p.e.Open(true, 443)}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*at.ln = ln
		p.entries = append(p.entries, at.entry)
		p.serving.Go(func() {
			if err := p.e.Serve(ln, at.entry); !errors.Is(err, net.ErrClosed) {
				t.Errorf("serve: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		p.stopAccepting()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		p.e.Close(ctx)
	})
	return p
}

// stopAccepting closes the listeners. It returns when every accepted connection is registered, as Engine.Close
// requires.
func (p *testProxy) stopAccepting() {
	p.plain.Close()
	p.secure.Close()
	p.serving.Wait()
}

// addRoute routes a host and a path prefix to addresses. Annotations have the form "name=value".
func (p *testProxy) addRoute(host, path string, addresses []string, annotations ...string) {
	name := strings.Trim(strings.NewReplacer(".", "-", "/", "-").Replace(host+path), "-")
	in := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}},
		Spec: networkingv1.IngressSpec{
			IngressClassName: ptr.To("c"),
			Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{{Path: path, PathType: ptr.To(networkingv1.PathTypePrefix),
						Backend: networkingv1.IngressBackend{
							Service: &networkingv1.IngressServiceBackend{
								Name: name,
								Port: networkingv1.ServiceBackendPort{Number: 80},
							},
						}}},
				},
			}}},
		},
	}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		in.Annotations["clusterctl.local/"+key] = value
	}
	key := route.Key{Namespace: "default", Name: name}
	p.b.SetService(key, &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	p.setServiceEndpoints(name, addresses)
	p.b.SetIngress(key, in)
	if problems := p.b.Problems(key); len(problems) > 0 {
		p.t.Fatal(problems)
	}
	for _, at := range p.entries {
		at.SetTable(p.b.Table())
	}
}

// setServiceEndpoints sets the endpoints of a service.
func (p *testProxy) setServiceEndpoints(service string, addresses []string) {
	var slices []*discoveryv1.EndpointSlice
	for _, a := range addresses {
		at := netip.MustParseAddrPort(a)
		slices = append(slices, &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Port: ptr.To(int32(at.Port()))}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}},
		})
	}
	p.b.SetSlices(route.Key{Namespace: "default", Name: service}, slices)
}

// startBackend starts a server with a handler and returns its address.
func startBackend(t testing.TB, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// newClient returns a client that connects to the proxy for any host.
func (p *testProxy) newClient(protocols ...string) *http.Client {
	var allowed http.Protocols
	for _, name := range protocols {
		switch name {
		case "h2":
			allowed.SetHTTP2(true)
		case "h2c":
			allowed.SetUnencryptedHTTP2(true)
		}
	}
	if len(protocols) == 0 {
		allowed.SetHTTP1(true)
	}
	tr := &http.Transport{
		Protocols: &allowed, TLSClientConfig: &tls.Config{RootCAs: p.roots}, DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ln := p.plain
			if strings.HasSuffix(address, ":443") {
				ln = p.secure
			}
			return new(net.Dialer).DialContext(ctx, network, ln.Addr().String())
		},
	}
	p.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// sendRaw sends text on a new connection, and returns a reader of the response.
func (p *testProxy) sendRaw(text string) (net.Conn, *bufio.Reader) {
	p.t.Helper()
	nc, err := net.Dial("tcp", p.plain.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(nc, text); err != nil {
		p.t.Fatal(err)
	}
	return nc, bufio.NewReader(nc)
}

func readBody(t testing.TB, res *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// protocolPairs are the protocols between a client and the proxy.
var protocolPairs = []struct {
	name, scheme string
	protocols    []string
}{{"HTTP/1.1", "http", nil}, {"HTTP/1.1 over TLS", "https", nil}, {"h2c", "http", []string{"h2c"}},
	{"h2", "https", []string{"h2"}}}

func TestRequestsAndResponsesAreForwardedCompletely(t *testing.T) {
	p := startProxy(t, nil)
	at := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the body: %v", err)
		}
		w.Header().
			Set("X-Seen", fmt.Sprintf("%s %s %s %d %s", r.Method, r.Host, r.RequestURI, len(b), r.Header.Get("X-Own")))
		w.Header().Set("Trailer", "X-Sum")
		switch r.URL.Query().Get("framing") {
		case "length":
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		case "nothing":
			w.WriteHeader(204)
			return
		}
		w.WriteHeader(201)
		for len(b) > 0 {
			n := min(len(b), 1000)
			_, _ = w.Write(b[:n])
			b = b[n:]
			if r.URL.Query().Get("framing") == "pieces" {
				_ = http.NewResponseController(w).Flush()
			}
		}
		w.Header().Set("X-Sum", "done")
	})
	p.addRoute("a.example", "/", []string{at})
	for _, way := range protocolPairs {
		client := p.newClient(way.protocols...)
		for _, size := range []int{0, 1, 3000, 100_000, amount.Scaled(1_000_000, 200_000)} {
			for _, framing := range []string{"length", "pieces", "nothing"} {
				for _, isKnown := range []bool{true, false} {
					text := strings.Repeat("0123456789", size/10+1)[:size]
					var from io.Reader = strings.NewReader(text)
					if !isKnown {
						from = io.MultiReader(from)
					}
					r, _ := http.NewRequest("POST", way.scheme+"://a.example/x%20y?framing="+framing, from)
					r.Header.Set("X-Own", "mine")
					res, err := client.Do(r)
					got := readBody(t, res, err)
					name := fmt.Sprintf("%s, %d bytes, %s, known %v", way.name, size, framing, isKnown)
					if framing == "nothing" {
						if res.StatusCode != 204 || got != "" {
							t.Errorf("%s: %d %q", name, res.StatusCode, got)
						}
						continue
					}
					if got != text || res.StatusCode != 201 {
						t.Errorf("%s: status %d with %d bytes", name, res.StatusCode, len(got))
					}
					if want := fmt.Sprintf("POST a.example /x%%20y?framing=%s %d mine", framing, size); res.Header.Get(
						"X-Seen") != want {
						t.Errorf("%s: the backend saw %q, want %q", name, res.Header.Get("X-Seen"), want)
					}
					if framing == "pieces" && size > 0 && res.Trailer.Get("X-Sum") != "done" {
						t.Errorf("%s: trailers %v", name, res.Trailer)
					}
				}
			}
		}
	}
}

func TestBackendsGetTheForwardedFields(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port",
			"X-Real-Ip", "Forwarded"} {
			fmt.Fprintf(w, "%s|", strings.Join(r.Header[name], "+"))
		}
		for name := range r.Header {
			if strings.Contains(name, "_") || name == "Proxy" || name == "X-Hop" || name == "Keep-Alive" {
				fmt.Fprintf(w, "%s!", name)
			}
		}
	}
	for trusted, want := range map[string]string{
		"192.0.2.0/24": "127.0.0.1|%s|a.example|%s|127.0.0.1||",
		"127.0.0.0/8":  "1.2.3.4, 127.0.0.1|gopher|other.example|7|5.6.7.8|for=1.2.3.4|",
	} {
		p := startProxy(t, func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix(trusted)} })
		p.addRoute("a.example", "/", []string{startBackend(t, handler)})
		for _, way := range protocolPairs {
			r, _ := http.NewRequest("GET", way.scheme+"://a.example/", nil)
			for name, value := range map[string]string{
				"X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "other.example",
				"X-Forwarded-Port": "7", "X-Real-Ip": "5.6.7.8",
				"Forwarded": "for=1.2.3.4", "Proxy": "http://evil", "X_Forwarded_For": "9.9.9.9",
			} {
				r.Header.Set(name, value)
			}
			if way.protocols == nil {
				r.Header.Set("Connection", "x-hop, keep-alive")
				r.Header.Set("X-Hop", "1")
				r.Header.Set("Keep-Alive", "5")
			}
			res, err := p.newClient(way.protocols...).Do(r)
			expect := want
			if strings.Contains(want, "%s") {
				expect = fmt.Sprintf(want, way.scheme, map[string]string{"http": "80", "https": "443"}[way.scheme])
			}
			if got := readBody(t, res, err); got != expect {
				t.Errorf("%s, %s trusted: %s, want %s", way.name, trusted, got, expect)
			}
		}
	}
}

func TestFailedRequestsGetTheirStatus(t *testing.T) {
	p := startProxy(t, nil)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	hangs := make(chan struct{})
	slow := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(hangs) })
	echo := startBackend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	nonsense, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nonsense.Close() })
	go func() {
		for {
			nc, err := nonsense.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = bufio.NewReader(nc).ReadString('\n')
				_, _ = io.WriteString(nc, "HELLO\r\n\r\n")
				nc.Close()
			}()
		}
	}()
	p.addRoute("a.example", "/refused", []string{closed.Addr().String()})
	p.addRoute("a.example", "/nobody", nil)
	p.addRoute("a.example", "/slow", []string{slow}, "proxy-read-timeout=50ms")
	p.addRoute("a.example", "/small", []string{echo}, "proxy-body-size=10")
	p.addRoute("a.example", "/nonsense", []string{nonsense.Addr().String()})
	p.addRoute("a.example", "/forced", []string{echo}, "force-ssl-redirect=true")
	for _, way := range protocolPairs {
		client := p.newClient(way.protocols...)
		for path, want := range map[string]int{
			"refused": 502, "nobody": 503, "slow": 504, "small": 413, "small-chunked": 413, "none": 404,
			"nonsense": 502, "forced": 308, "forced/../../..": 400,
		} {
			if way.scheme == "https" && path == "forced" {
				want = 200
			}
			var from io.Reader = strings.NewReader(strings.Repeat("x", 100))
			if strings.HasSuffix(path, "-chunked") {
				from = io.MultiReader(from)
			}
			r, _ := http.NewRequest("POST", way.scheme+"://a.example/"+strings.TrimSuffix(path, "-chunked"), from)
			if path == "none" {
				r.Host = "c.example"
			}
			res, err := client.Do(r)
			text := readBody(t, res, err)
			if res.StatusCode != want {
				t.Errorf("%s %s: %d %s, want %d", way.name, path, res.StatusCode, text, want)
			}
			if want == 308 && res.Header.Get("Location") != "https://a.example/forced" {
				t.Errorf("%s: redirected to %s", way.name, res.Header.Get("Location"))
			}
		}
	}
}
