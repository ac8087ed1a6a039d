package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/ingress/route"
)

var emptyRule = &route.Rule{Policy: &route.Policy{}}

func TestWebSocketsAreForwardedInBothDirections(t *testing.T) {
	p := startProxy(t, nil)
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	p.addRoute("a.example", "/", []string{startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.Close()
		for {
			kind, text, err := ws.ReadMessage()
			if err != nil {
				return
			}
			if err := ws.WriteMessage(kind, append([]byte("echo "), text...)); err != nil {
				return
			}
		}
	})})
	for _, scheme := range []string{"ws", "wss"} {
		tr := p.newClient().Transport.(*http.Transport)
		d := websocket.Dialer{
			NetDialContext:   tr.DialContext,
			TLSClientConfig:  tr.TLSClientConfig,
			HandshakeTimeout: 5 * time.Second,
		}
		ws, res, err := d.Dial(scheme+"://a.example/", nil)
		if err != nil {
			t.Fatal(scheme, err)
		}
		res.Body.Close()
		for i := range 20 {
			text := strings.Repeat(fmt.Sprint(i), 3000*i+1)
			if err := ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if _, got, err := ws.ReadMessage(); err != nil || string(got) != "echo "+text {
				t.Fatalf("%s: message %d: %d bytes, %v", scheme, i, len(got), err)
			}
		}
		ws.Close()
	}
}

func TestGRPCIsForwardedWithStatusAndStreams(t *testing.T) {
	p := startProxy(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, h := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, h)
	h.SetServingStatus("web", grpc_health_v1.HealthCheckResponse_SERVING)
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(s.Stop)
	p.addRoute("a.example", "/", []string{ln.Addr().String()}, "backend-protocol=GRPC")
	cc, err := grpc.NewClient("passthrough:///"+p.plain.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("a.example"))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	client := grpc_health_v1.NewHealthClient(cc)
	res, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "web"})
	if err != nil || res.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", res, err)
	}
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "none"}); status.Code(
		err,
	) != codes.NotFound {
		t.Errorf("a status of its own does not come through: %v", err)
	}
	watch, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{Service: "web"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{grpc_health_v1.HealthCheckResponse_SERVING,
		grpc_health_v1.HealthCheckResponse_NOT_SERVING} {
		if res, err := watch.Recv(); err != nil || res.Status != want {
			t.Fatalf("%v, %v, want %v", res, err, want)
		}
		h.SetServingStatus("web", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	}
	// The same backend serves HTTP/1 clients.
	plain, err := p.newClient().
		Post("http://a.example/grpc.health.v1.Health/Check", "application/grpc",
			strings.NewReader("\x00\x00\x00\x00\x00"))
	if readBody(t, plain, err); plain.Header.Get("Content-Type") != "application/grpc" {
		t.Errorf("over HTTP/1: %d %v", plain.StatusCode, plain.Header)
	}
}

// A response can start before the request body is complete.
func TestBodiesStreamInBothDirectionsAtOnce(t *testing.T) {
	p := startProxy(t, nil)
	p.addRoute("a.example", "/", []string{startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	})})
	for _, way := range protocolPairs {
		in, out := io.Pipe()
		r, _ := http.NewRequest("POST", way.scheme+"://a.example/", in)
		answered := make(chan *http.Response, 1)
		go func() {
			res, err := p.newClient(way.protocols...).Do(r)
			if err != nil {
				t.Error(way.name, err)
			}
			answered <- res
		}()
		fmt.Fprint(out, "first")
		res := <-answered
		if res == nil {
			continue
		}
		b := make([]byte, 5)
		for _, want := range []string{"first", "secnd", "third"} {
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != want {
				t.Errorf("%s: %q, %v, want %s", way.name, b, err, want)
			}
			if next := map[string]string{"first": "secnd", "secnd": "third"}[want]; next != "" {
				fmt.Fprint(out, next)
			}
		}
		out.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

func TestContinueIsSentByTheBackend(t *testing.T) {
	p := startProxy(t, nil)
	p.addRoute("a.example", "/", []string{startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(417)
			return
		}
		_, _ = io.Copy(w, r.Body)
	})})
	nc, answer := p.sendRaw("POST /yes HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: " +
		"3\r\n\r\n")
	if text, err := answer.ReadString('\n'); err != nil || text != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", text, err)
	}
	fmt.Fprint(nc, "abc")
	_, _ = answer.ReadString('\n')
	res, err := http.ReadResponse(answer, nil)
	if got := readBody(t, res, err); got != "abc" {
		t.Error(got)
	}
	_, answer = p.sendRaw("POST /no HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if text, err := answer.ReadString('\n'); err != nil || text != "HTTP/1.1 417 Expectation Failed\r\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRequestsOfOneConnectionAreAnsweredInOrder(t *testing.T) {
	p := startProxy(t, nil)
	p.addRoute("a.example", "/", []string{startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, b)
	})})
	var all strings.Builder
	for i := range 50 {
		if i%2 == 0 {
			fmt.Fprintf(&all, "GET /%d HTTP/1.1\r\nHost: a.example\r\n\r\n", i)
		} else {
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: "+
				"chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", i)
		}
	}
	_, answer := p.sendRaw(all.String())
	for i := range 50 {
		want := fmt.Sprintf("/%d ", i)
		if i%2 == 1 {
			want += "abc"
		}
		res, err := http.ReadResponse(answer, nil)
		if got := readBody(t, res, err); got != want {
			t.Fatalf("answer %d: %q, want %q", i, got, want)
		}
	}
}

func TestHTTP10ClientsGetNoChunkedResponses(t *testing.T) {
	p := startProxy(t, nil)
	p.addRoute("a.example", "/", []string{startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one ")
		_ = http.NewResponseController(w).Flush() // uses chunked encoding
		fmt.Fprint(w, "two")
	})})
	_, answer := p.sendRaw("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: keep-alive\r\n\r\n")
	text, err := io.ReadAll(answer)
	if err != nil || !strings.HasSuffix(string(text), "\r\n\r\none two") ||
		strings.Contains(strings.ToLower(string(text)), "chunked") {
		t.Errorf("%q, %v", text, err)
	}
}

func TestPROXYProtocolSetsTheClientAddress(t *testing.T) {
	p := startProxy(t, func(c *Config) { c.ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	p.addRoute(
		"a.example",
		"/",
		[]string{
			startBackend(t, func(w http.ResponseWriter,
				r *http.Request) {
				fmt.Fprint(w, r.Header.Get("X-Forwarded-For"))
			}),
		},
	)
	second := append([]byte(proxySignature), 0x21, 0x11)
	second = binary.BigEndian.AppendUint16(second, 12)
	second = append(second, 192, 0, 2, 7, 10, 0, 0, 1, 0, 80, 0, 80)
	for head, want := range map[string]string{
		"PROXY TCP4 192.0.2.5 10.0.0.1 1234 80\r\n": "192.0.2.5", "PROXY TCP6 2001:db8::1 ::1 1234 " +
			"80\r\n": "2001:db8::1", "PROXY UNKNOWN\r\n": "127.0.0.1",
		string(second): "192.0.2.7", "PROXY TCP4 nobody 10.0.0.1 1234 80\r\n": "", "": "",
	} {
		_, answer := p.sendRaw(head + "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
		text, _ := io.ReadAll(answer)
		if _, got, _ := strings.Cut(string(text), "\r\n\r\n"); got != want {
			t.Errorf("%q: %q, want %q", head, text, want)
		}
	}
}

func TestOnlyRepeatableRequestsAreRetried(t *testing.T) {
	p := startProxy(t, nil)
	var died atomic.Int64
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = nc.Read(make([]byte, 1000))
				died.Add(1)
				nc.Close()
			}()
		}
	}()
	p.addRoute(
		"a.example",
		"/",
		[]string{ln.Addr().String(),
			startBackend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") })},
	)
	for _, way := range protocolPairs {
		for method, allowed := range map[string]bool{"GET": true, "POST": false} {
			before, failed := died.Load(), 0
			for range 10 {
				r, _ := http.NewRequest(method, way.scheme+"://a.example/", nil)
				res, err := p.newClient(way.protocols...).Do(r)
				if readBody(t, res, err); res.StatusCode != 200 {
					failed++
				}
			}
			if died.Load() == before || allowed == (failed > 0) {
				t.Errorf("%s %s: %d of 10 failed, %d connections died", way.name, method, failed, died.Load()-before)
			}
		}
	}
}

// No request fails while endpoints are replaced, as in a rolling update.
func TestNoRequestFailsWhileEndpointsRoll(t *testing.T) {
	p := startProxy(t, nil)
	pod := func() *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, "ok")
		}))
	}
	pods := []*httptest.Server{pod(), pod(), pod()}
	addresses := func() (list []string) {
		for _, s := range pods {
			list = append(list, s.Listener.Addr().String())
		}
		return list
	}
	p.addRoute("a.example", "/", addresses())
	ctx, stop := context.WithCancel(t.Context())
	var g sync.WaitGroup
	var done atomic.Int64
	for i := range 16 {
		way := protocolPairs[i%len(protocolPairs)]
		client := p.newClient(way.protocols...)
		g.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequest("GET", way.scheme+"://a.example/", nil)
				res, err := client.Do(r)
				if err != nil {
					t.Errorf("%s: %v", way.name, err)
					return
				}
				if text := readBody(t, res, nil); res.StatusCode != 200 {
					t.Errorf("%s: %d %s", way.name, res.StatusCode, text)
					return
				}
				done.Add(1)
			}
		})
	}
	for range 30 {
		before := done.Load()
		for done.Load() < before+50 && !t.Failed() {
			time.Sleep(time.Millisecond) // until some more requests are complete
		}
		old := pods[0]
		pods = append(pods[1:], pod())
		p.setServiceEndpoints("a-example", addresses())
		old.Close() // closes idle connections and waits for requests
	}
	stop()
	g.Wait()
	for _, s := range pods {
		s.Close()
	}
}

// A draining engine completes running requests, ends all connections after their response, and loses no accepted
// connection.
func TestNoRequestFailsWhenTheEngineDrains(t *testing.T) {
	p := startProxy(t, nil)
	hold, held := make(chan struct{}), make(chan struct{})
	p.addRoute("a.example", "/", []string{startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(held)
			<-hold
		}
		fmt.Fprint(w, "ok")
	})})
	long := make(chan string, 1)
	go func() {
		res, err := p.newClient().Get("http://a.example/long")
		if err != nil {
			long <- err.Error()
			return
		}
		long <- readBody(t, res, nil)
	}()
	<-held
	fresh, answer := p.sendRaw("")
	drained := make(chan struct{})
	go func() {
		p.e.Drain(t.Context())
		close(drained)
	}()
	for !p.e.draining.Load() {
		time.Sleep(time.Millisecond)
	}
	res, err := p.newClient().Get("http://a.example/")
	if readBody(t, res, err); !res.Close {
		t.Error("an answer during the drain does not end its connection")
	}
	close(hold)
	if got := <-long; got != "ok" {
		t.Errorf("a request that had begun: %s", got)
	}
	<-drained
	p.stopAccepting()
	closed := make(chan struct{})
	go func() {
		p.e.Close(t.Context())
		close(closed)
	}()
	fmt.Fprint(fresh, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
	res, err = http.ReadResponse(answer, nil)
	if got := readBody(t, res, err); got != "ok" {
		t.Errorf("the first request of a connection that was accepted before: %s", got)
	}
	<-closed
}
