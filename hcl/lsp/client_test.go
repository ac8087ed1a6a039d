package lsp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// client is the client of an editor.
type client struct {
	t           *testing.T
	dir         string
	in          io.WriteCloser
	diagnostics chan diagnosticsParams
	lastID      int
	raw         chan json.RawMessage
}

// reply is a decoded message of the server.
type reply struct {
	ID     *int            `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *responseError  `json:"error"`
}

func newClient(t *testing.T, files map[string]string) *client {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	c := &client{t: t, dir: dir, in: in, diagnostics: make(chan diagnosticsParams, 100),
		raw: make(chan json.RawMessage, 10)}
	done := make(chan error, 1)
	go func() {
		done <- Serve(context.Background(), toServer, fromServer)
		_ = fromServer.Close()
	}()
	go c.listen(bufio.NewReader(out))
	t.Cleanup(func() {
		c.notify("exit", nil)
		if err := <-done; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	c.request("initialize", map[string]any{"capabilities": map[string]any{}})
	c.notify("initialized", map[string]any{})
	return c
}

func (c *client) listen(r *bufio.Reader) {
	for {
		text, err := readMessage(r)
		if err != nil {
			close(c.raw)
			return
		}
		var m reply
		if err := json.Unmarshal(text, &m); err != nil {
			c.t.Errorf("%s: %v", text, err)
			return
		}
		switch {
		case m.Method == "textDocument/publishDiagnostics":
			var p diagnosticsParams
			if err := json.Unmarshal(m.Params, &p); err != nil {
				c.t.Error(err)
			}
			c.diagnostics <- p
		case m.Method != "":
			c.t.Errorf("the server says %s", text)
		case m.Error != nil:
			c.raw <- json.RawMessage(fmt.Sprintf("%q", m.Error.Message))
		default:
			c.raw <- m.Result
		}
	}
}

func (c *client) send(m any) {
	c.t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c.in, "Content-Length: %d\r\n\r\n%s", len(text), text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) notify(method string, params any) {
	c.t.Helper()
	c.send(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

func (c *client) request(method string, params any) json.RawMessage {
	c.t.Helper()
	c.lastID++
	c.send(map[string]any{"jsonrpc": "2.0", "id": c.lastID, "method": method, "params": params})
	select {
	case r := <-c.raw:
		return r
	case <-time.After(time.Minute):
		c.t.Fatalf("no answer to %s", method)
		return nil
	}
}

func (c *client) uri(name string) string { return uriOf(filepath.Join(c.dir, name)) }

// open opens a document. A bar in the text marks the position that it returns.
func (c *client) open(name, text string) map[string]any {
	c.t.Helper()
	at := strings.Index(text, "|")
	text = strings.Replace(text, "|", "", 1)
	c.notify(
		"textDocument/didOpen",
		map[string]any{
			"textDocument": map[string]any{"uri": c.uri(name), "languageId": "clusterctl", "version": 1, "text": text},
		},
	)
	return map[string]any{"textDocument": map[string]any{"uri": c.uri(name)}, "position": positionOf(text, at)}
}

// nextDiagnostics waits for the next diagnostics of a file and returns them.
func (c *client) nextDiagnostics(name string) []diagnostic {
	c.t.Helper()
	for {
		select {
		case p := <-c.diagnostics:
			if p.URI == c.uri(name) {
				return p.Diagnostics
			}
		case <-time.After(time.Minute):
			c.t.Fatalf("nothing is said of %s", name)
		}
	}
}

func (c *client) labels(place map[string]any) map[string]completionItem {
	c.t.Helper()
	var list struct {
		Items []completionItem `json:"items"`
	}
	if err := json.Unmarshal(c.request("textDocument/completion", place), &list); err != nil {
		c.t.Fatal(err)
	}
	found := map[string]completionItem{}
	for _, i := range list.Items {
		found[i.Label] = i
	}
	return found
}
