package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver"
)

// startKubelet starts a kubelet that serves logs, and echoes data after an upgrade.
func startKubelet(t *testing.T, ca certs.Pair, node string) *httptest.Server {
	t.Helper()
	leaf, err := certs.Issue(ca, certs.KubeletServer(node, nil), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(leaf.Cert, leaf.Key)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/default/p/c", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("previous") == "true" {
			http.Error(w, "no previous container", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "tail %s\n", r.URL.Query().Get("tailLines"))
	})
	mux.HandleFunc("/exec/default/p/c", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || strings.Join(r.URL.Query()["command"], " ") != "echo -n" ||
			r.URL.Query().Get("input") != "1" {
			http.Error(w, "unexpected "+r.URL.RawQuery, http.StatusBadRequest)
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.Copy(conn, buf)
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// Proves S08.
func TestStreamsReachTheVerifiedKubelet(t *testing.T) {
	ca, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Cert)
	cfg := startConfig(t, stores["memory"](t), func(o *apiserver.Options) {
		o.Peers.KubeletTLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	})
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	createNode(t, ctx, client, "n", startKubelet(t, ca, "n"))
	createNode(t, ctx, client, "impostor", startKubelet(t, ca, "n"))
	for name, on := range map[string]string{"p": "n", "q": "impostor"} {
		p := pod(name)
		p.Spec.NodeName = on
		if _, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	lines := int64(3)
	data, err := client.CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
	if err != nil || string(data) != "tail 3\n" {
		t.Errorf("logs: %q, %v", data, err)
	}
	_, err = client.CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{Previous: true}).Stream(ctx)
	if err == nil || err.Error() != "no previous container" {
		t.Errorf("refused logs: %v", err)
	}
	if answer, _ := sendRaw(t, cfg, "GET", "/api/v1/namespaces/default/pods/q/log", "", nil); answer.StatusCode != 500 {
		t.Errorf("a kubelet with another's certificate: %d", answer.StatusCode)
	}
	if answer, _ := sendRaw(t, cfg, "GET", "/api/v1/namespaces/default/pods/p/log?container=none", "",
		nil); answer.StatusCode != 400 {
		t.Errorf("no such container: %d", answer.StatusCode)
	}
	for protocol, want := range map[string]string{"": "tail 3\n", "binary.k8s.io": "tail 3\n",
		"base64.binary.k8s.io": "dGFpbCAzCg=="} {
		if got := logOverWebSocket(t, cfg.Host, protocol, "tailLines=3"); got != want {
			t.Errorf("a log by protocol %q: %q, want %q", protocol, got, want)
		}
	}
	if got := logOverWebSocket(t, cfg.Host, "", "previous=true"); got != "400 Bad Request" {
		t.Errorf("refused logs over a WebSocket: %s", got)
	}
	checkEcho(t, cfg.Host)
}

// logOverWebSocket returns the log of pod p, or the status of a refusal.
func logOverWebSocket(t *testing.T, host, protocol, query string) string {
	t.Helper()
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	if protocol != "" {
		dialer.Subprotocols = []string{protocol}
	}
	base := strings.Replace(host, "http", "ws", 1)
	conn, answer, err := dialer.Dial(base+"/api/v1/namespaces/default/pods/p/log?"+query, http.Header{"Origin": {host}})
	if err != nil {
		if answer != nil {
			return answer.Status
		}
		t.Fatal(err)
	}
	defer conn.Close()
	var out strings.Builder
	for {
		_, data, err := conn.ReadMessage()
		if err != nil {
			return out.String()
		}
		out.Write(data)
	}
}

func createNode(t *testing.T, ctx context.Context, client kubernetes.Interface, name string, server *httptest.Server) {
	t.Helper()
	_, text, _ := net.SplitHostPort(server.Listener.Addr().String())
	port, _ := strconv.Atoi(text)
	n, err := client.CoreV1().
		Nodes().
		Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// checkEcho upgrades a connection through the server, sends data and expects it back.
func checkEcho(t *testing.T, host string) {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(host, "https://"),
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "POST /api/v1/namespaces/default/pods/p/exec?command=echo&command=-n&stdin=true "+
		"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != 101 {
		t.Fatalf("upgrade: %+v, %v", answer, err)
	}
	fmt.Fprint(conn, "hello")
	data := make([]byte, 5)
	if _, err := io.ReadFull(in, data); err != nil || string(data) != "hello" {
		t.Errorf("echo: %q, %v", data, err)
	}
}
