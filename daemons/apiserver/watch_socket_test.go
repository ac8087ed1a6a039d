package apiserver_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A watch over a WebSocket sends each event as a message, in order, and then closes the connection.
// Proves S12.
func TestWatchesStreamOverWebSockets(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	const path = "/api/v1/namespaces/default/configmaps"
	for _, name := range []string{"a", "b"} {
		if code, text := sendRequest(t, cfg, "POST", path, `{"metadata":{"name":"`+name+`"}}`); code != 201 {
			t.Fatalf("%d %s", code, text)
		}
	}
	dial := func(query string, header http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
		dialer := websocket.Dialer{
			TLSClientConfig:  &tls.Config{InsecureSkipVerify: true},
			HandshakeTimeout: 10 * time.Second,
			Subprotocols:     protocols,
		}
		conn, answer, err := dialer.Dial("wss"+strings.TrimPrefix(cfg.Host, "https")+path+query, header)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		return conn, answer, err
	}
	conn, answer, err := dial("?watch=1&fieldSelector=metadata.name!%3Dkube-root-ca.crt",
		http.Header{"Origin": {"https://dashboard.example.com"}}, "v1.example.com")
	if err != nil {
		t.Fatal(err, answer)
	}
	if got := conn.Subprotocol(); got != "v1.example.com" {
		t.Errorf("the protocol is %q", got)
	}
	checkEvent(t, conn, "ADDED", "a")
	checkEvent(t, conn, "ADDED", "b")
	if err := conn.WriteMessage(websocket.TextMessage, []byte("what a client says means nothing")); err != nil {
		t.Fatal(err)
	}
	sendRequest(t, cfg, "POST", path, `{"metadata":{"name":"c"},"data":{"text":"two\nlines"}}`)
	sendRequest(t, cfg, "DELETE", path+"/a", "")
	checkEvent(t, conn, "ADDED", "c")
	checkEvent(t, conn, "DELETED", "a")

	// A watch that times out ends with a normal closure.
	if conn, answer, err = dial("?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dc", nil); err != nil {
		t.Fatal(err, answer)
	}
	checkEvent(t, conn, "ADDED", "c")
	_, _, err = conn.ReadMessage()
	if closed := (*websocket.CloseError)(nil); !errors.As(err, &closed) || closed.Code != websocket.CloseNormalClosure {
		t.Errorf("the end is %v", err)
	}
	// In protobuf, messages are binary without a length prefix.
	if conn, answer, err = dial("?watch=1&fieldSelector=metadata.name%3Dc",
		http.Header{"Accept": {runtime.ContentTypeProtobuf}}); err != nil {
		t.Fatal(err, answer)
	}
	if typ, data, err := conn.ReadMessage(); err != nil || typ != websocket.BinaryMessage ||
		!strings.HasPrefix(string(data), "k8s\x00") && !strings.HasPrefix(string(data), "\x0a\x05ADDED") {
		t.Errorf("%d %q %v", typ, data, err)
	}
	for name, c := range map[string]struct {
		query     string
		accept    string
		protocols []string
		code      int
	}{
		"an invalid selector":       {"?watch=1&labelSelector=%3D%3D", "", nil, 400},
		"too many protocols":        {"?watch=1", "", []string{"a", "b"}, 400},
		"a form that does not fit":  {"?watch=1", "application/yaml", nil, 406},
		"a form that has no frames": {"?watch=1", "application/cbor", nil, 406},
	} {
		header := http.Header{}
		if c.accept != "" {
			header.Set("Accept", c.accept)
		}
		_, answer, err := dial(c.query, header, c.protocols...)
		if err == nil || answer == nil || answer.StatusCode != c.code {
			t.Errorf("%s: %v %v", name, err, answer)
		}
	}
}

// checkEvent reads an event of a watch.
func checkEvent(t *testing.T, conn *websocket.Conn, kind, name string) {
	t.Helper()
	typ, data, err := conn.ReadMessage()
	var e struct {
		Type   string
		Object struct{ Metadata metav1.ObjectMeta }
	}
	if err != nil || typ != websocket.TextMessage {
		t.Fatal(typ, err)
	}
	if err := json.Unmarshal(data, &e); err != nil || e.Type != kind || e.Object.Metadata.Name != name {
		t.Errorf("%v: %s; want %s %s", err, data, kind, name)
	}
}
