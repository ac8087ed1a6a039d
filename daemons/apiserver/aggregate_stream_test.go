package apiserver_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/apiserver"
)

// streamingServer serves foot.example.com. Its console subresource upgrades to a stream that echoes, and its hung
// subresource never answers.
func streamingServer(t *testing.T) (port string) {
	t.Helper()
	hung := make(chan struct{})
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis/foot.example.com/v1":
			fmt.Fprint(
				w,
				`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"foot.example.com/v1","resources":[{"name":"shoes","namespaced":true,"kind":"Shoe","verbs":["get"]},{"name":"shoes/console","namespaced":true,"kind":"Shoe","verbs":["get"]}]}`,
			)
		case strings.HasSuffix(r.URL.Path, "/hung"):
			select {
			case <-r.Context().Done():
			case <-hung:
			}
		case strings.HasSuffix(r.URL.Path, "/console"):
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: talk\r\n\r\n")
			_, _ = io.Copy(conn, buffered)
		default:
			http.NotFound(w, r)
		}
	}))
	web.StartTLS()
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(hung) })
	_, port, err := net.SplitHostPort(web.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A stream to an aggregated server has no time limit. A request that does not become a stream ends at its timeout.
// Proves S12.
func TestStreamsToAggregatedServersHaveNoTimeLimit(t *testing.T) {
	port := streamingServer(t)
	cfg := startConfig(t, stores["memory"](t), func(o *apiserver.Options) { o.Limits.RequestTimeout = 2 * time.Second })
	for path, body := range map[string]string{
		"/api/v1/namespaces/default/services":         `{"apiVersion":"v1","kind":"Service","metadata":{"name":"shoes"},"spec":{"type":"ExternalName","externalName":"localhost"}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.foot.example.com"},"spec":{"group":"foot.example.com","version":"v1","insecureSkipTLSVerify":true,"groupPriorityMinimum":100,"versionPriority":10,"service":{"namespace":"default","name":"shoes","port":` + port + `}}}`,
	} {
		if code, text := sendRequest(t, cfg, "POST", path, body); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	const shoe = "/apis/foot.example.com/v1/namespaces/default/shoes/s/"
	waitUntil(t, func() error {
		if code, text := sendRequest(t, cfg, "GET", "/apis/foot.example.com/v1", ""); code != 200 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	address := strings.TrimPrefix(cfg.Host, "https://")
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %sconsole HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: talk\r\n\r\n", shoe,
		address)
	from := bufio.NewReader(conn)
	answer, err := http.ReadResponse(from, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		var text []byte
		if err == nil {
			text, _ = io.ReadAll(answer.Body)
		}
		t.Fatalf("%+v, %v\n%s", answer, err, text)
	}
	// A stream does not count as a request in flight. The scrape itself does.
	waitUntil(t, func() error {
		for _, one := range scrapeMetrics(t, cfg)["apiserver_current_inflight_requests"].series {
			if one.labels["request_kind"] == "readOnly" && one.value != 1 {
				return fmt.Errorf("%v reads are in flight", one.value)
			}
		}
		return nil
	})
	// These requests begin after the stream and end at their timeout. So the stream has outlasted the timeout as well.
	for _, headers := range [][]string{nil, {"Connection", "Upgrade", "Upgrade", "talk"}} {
		h1 := *cfg
		h1.NextProtos = []string{"http/1.1"}
		if code, text := sendRequest(t, &h1, "GET", shoe+"hung", "", headers...); code != http.StatusGatewayTimeout {
			t.Errorf("%v: %d %s", headers, code, text)
		}
	}
	if _, err := conn.Write([]byte("still there\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := from.ReadString('\n'); line != "still there\n" {
		t.Errorf("%q, %v", line, err)
	}
}
