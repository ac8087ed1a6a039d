package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// stub is an API server that answers requests for logs and terminals itself, and passes on all others to the cluster.
type stub struct {
	t    *testing.T
	more chan string // further lines of a followed log

	mu       sync.Mutex
	requests []url.Values // of logs and terminals
}

// startStub starts the stub and a dashboard over it.
func startStub(t *testing.T) (*stub, *server) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{t: t, more: make(chan string)}
	cluster := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, ErrorHandler: func(w http.ResponseWriter,
			r *http.Request, err error) {
			if r.Context().Err() == nil {
				t.Errorf("pass on %s: %v", r.URL, err)
			}
			w.WriteHeader(http.StatusBadGateway)
		}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}/log", s.serveLog)
	mux.HandleFunc("/api/v1/namespaces/{namespace}/pods/{name}/exec", s.serveExec)
	mux.Handle("/", cluster)
	listener := httptest.NewServer(mux)
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["stub"] = &clientcmdapi.Cluster{Server: listener.URL}
	kubeconfig.AuthInfos["stub"] = clientcmdapi.NewAuthInfo()
	kubeconfig.Contexts["stub"] = &clientcmdapi.Context{Cluster: "stub", AuthInfo: "stub"}
	kubeconfig.CurrentContext = "stub"
	path := t.TempDir() + "/kubeconfig"
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	over, err := startDashboard(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := over.stop(); err != nil {
			t.Error(err)
		}
		listener.CloseClientConnections()
		listener.Close()
	})
	return s, over
}

// record keeps the query of a request.
func (s *stub) record(q url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, q)
}

// last returns the query of the last request.
func (s *stub) last() url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[len(s.requests)-1]
}

// serveLog answers with ten lines, and with further ones if the log is followed.
func (s *stub) serveLog(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.record(q)
	w.Header().Set("Content-Type", "text/plain")
	stamp, which := "", "line"
	if q.Get("timestamps") == "true" {
		stamp = "2026-01-02T03:04:05Z "
	}
	if q.Get("previous") == "true" {
		which = "former"
	}
	for i := range 10 {
		fmt.Fprintf(w, "%s%s %d of %s\n", stamp, which, i, q.Get("container"))
	}
	fmt.Fprintf(w, "%s\x1b[31mred\x1b[0m and %s\n", stamp, script)
	if q.Get("follow") != "true" {
		return
	}
	flush := http.NewResponseController(w)
	for {
		if flush.Flush() != nil {
			return
		}
		select {
		case line := <-s.more:
			fmt.Fprintln(w, line)
		case <-r.Context().Done():
			return
		}
	}
}

// The channels of the protocol v5.channel.k8s.io.
const (
	channelInput  = 0
	channelOutput = 1
	channelError  = 3
	channelResize = 4
)

// serveExec runs a program that repeats what is typed, and knows some commands.
func (s *stub) serveExec(w http.ResponseWriter, r *http.Request) {
	s.record(r.URL.Query())
	upgrader := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"},
		CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.t.Errorf("upgrade: %v", err)
		return
	}
	defer conn.Close()
	if conn.Subprotocol() != "v5.channel.k8s.io" {
		s.t.Errorf("the subprotocol is %q", conn.Subprotocol())
	}
	shell := &fakeShell{conn: conn}
	if err := shell.run(r.Context()); err != nil && !errors.Is(err, io.EOF) {
		s.t.Logf("the terminal ends: %v", err)
	}
}

// fakeShell is the program in the terminal.
type fakeShell struct {
	conn *websocket.Conn
	line bytes.Buffer
	size string
}

func (f *fakeShell) write(channel byte, data string) error {
	return f.conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, data...))
}

func (f *fakeShell) run(ctx context.Context) error {
	if err := f.write(channelOutput, "welcome\r\n$ "); err != nil {
		return err
	}
	for ctx.Err() == nil {
		_, data, err := f.conn.ReadMessage()
		if err != nil {
			return io.EOF // the client is gone
		}
		switch data[0] {
		case channelResize:
			var size struct{ Width, Height int }
			if err := json.Unmarshal(data[1:], &size); err != nil {
				return err
			}
			f.size = fmt.Sprintf("%dx%d", size.Width, size.Height)
		case channelInput:
			if isOver, err := f.typed(data[1:]); isOver || err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// typed repeats input, and runs the command at the end of a line.
func (f *fakeShell) typed(data []byte) (isOver bool, err error) {
	for _, b := range data {
		if b != '\r' {
			f.line.WriteByte(b)
			if err := f.write(channelOutput, strings.ReplaceAll(string(b), "\x1b", "^[")); err != nil {
				return false, err
			}
			continue
		}
		command := f.line.String()
		f.line.Reset()
		out := ""
		switch command {
		case "size":
			out = f.size
		case "colors":
			out = "\x1b[1;31mbold red\x1b[0m \x1b[38;5;82mgreen\x1b[0m " +
				"\x1b[48;2;10;20;200mblue\x1b[0m \x1b[7minverse\x1b[m"
		case "editor":
			out = "\x1b[?1049h\x1b[2J\x1b[1;1HEDITOR\x1b[3;5Hin the middle\x1b[?25l"
		case "quit":
			out = "\x1b[?25h\x1b[?1049l"
		case "many":
			for i := range 500 {
				out += fmt.Sprintf("row %d\r\n", i)
			}
		case "split": // a character in two messages
			if err := f.write(channelOutput, "\r\n\xe2\x82"); err != nil {
				return false, err
			}
			out = "\xac100"
			if err := f.write(channelOutput, out); err != nil {
				return false, err
			}
			out = ""
		case "exit":
			status := `{"metadata":{},"status":"Failure","reason":"NonZeroExitCode","message":"command terminated with ` +
				`non-zero exit code","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`
			if err := f.write(channelError, status); err != nil {
				return true, err
			}
			end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
			return true, f.conn.WriteMessage(websocket.CloseMessage, end)
		}
		if err := f.write(channelOutput, "\r\n"+out+"\r\n$ "); err != nil {
			return false, err
		}
	}
	return false, nil
}
