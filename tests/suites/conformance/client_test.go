package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// object is any JSON object.
type object = map[string]any

// client sends requests unchanged.
type client struct {
	url  string
	http *http.Client
}

// call is a request.
type call struct {
	method, path string // the path with its query
	body         []byte
	contentType  string // of the body; empty: JSON
	accept       string
	header       http.Header
}

// answer is the answer to a request.
type answer struct {
	code   int
	header http.Header
	raw    []byte
	obj    object // decoded from JSON
}

func get(path string, args ...any) call { return call{method: "GET", path: fmt.Sprintf(path, args...)} }
func post(path string, body any) call   { return call{method: "POST", path: path, body: encode(body)} }
func put(path string, body any) call    { return call{method: "PUT", path: path, body: encode(body)} }

func remove(path string, body any) call {
	c := call{method: "DELETE", path: path}
	if body != nil {
		c.body = encode(body)
	}
	return c
}

// patch returns a request with a patch of a type such as "merge-patch+json".
func patch(path, kind string, body any) call {
	return call{method: "PATCH", path: path, body: encode(body), contentType: "application/" + kind}
}

// withAccept sets the media type for the answer.
func (c call) withAccept(media string) call { c.accept = media; return c }

// encode returns the bytes of a body: the given bytes, or a value's JSON.
func encode(body any) []byte {
	switch b := body.(type) {
	case []byte:
		return b
	case string:
		return []byte(b)
	}
	data, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("a test sends what has no JSON: %v", err))
	}
	return data
}

func (c *client) request(ctx context.Context, r call) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if len(r.body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "conformance/1")
	}
	return c.http.Do(req)
}

// do sends a request and reads the answer.
func (c *client) do(t testing.TB, r call) answer {
	t.Helper()
	resp, err := c.request(context.Background(), r)
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	defer resp.Body.Close()
	a := answer{code: resp.StatusCode, header: resp.Header}
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		t.Fatalf("%s %s: read the answer: %v", r.method, r.path, err)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && len(a.raw) > 0 &&
		resp.Header.Get("Content-Encoding") == "" {
		if err := json.Unmarshal(a.raw, &a.obj); err != nil {
			t.Fatalf("%s %s: the answer is no JSON: %v\n%.300s", r.method, r.path, err, a.raw)
		}
	}
	return a
}

// mustAnswer sends a request and fails the test if the answer has another code.
func (c *client) mustAnswer(t testing.TB, code int, r call) answer {
	t.Helper()
	a := c.do(t, r)
	if a.code != code {
		t.Fatalf("%s %s: %d, want %d: %.600s", r.method, r.path, a.code, code, a.raw)
	}
	return a
}

// mustRefuse sends a request and checks that it is refused with a code, a reason, and a message that contains a text.
func (c *client) mustRefuse(t testing.TB, r call, code int, reason, message string) answer {
	t.Helper()
	a := c.do(t, r)
	if a.code != code {
		t.Errorf("%s %s: %d, want %d: %.600s", r.method, r.path, a.code, code, a.raw)
		return a
	}
	if a.textAt("kind") != "Status" || a.textAt("apiVersion") != "v1" || a.textAt("status") != "Failure" ||
		a.valueAt("code") != float64(code) {
		t.Errorf("%s %s: a refusal is a v1 Status with its code: %.600s", r.method, r.path, a.raw)
	}
	if a.textAt("reason") != reason {
		t.Errorf("%s %s: reason %q, want %q: %s", r.method, r.path, a.textAt("reason"), reason, a.textAt("message"))
	}
	if !strings.Contains(a.textAt("message"), message) {
		t.Errorf("%s %s: message\n     %q\nwant %q", r.method, r.path, a.textAt("message"), message)
	}
	return a
}

// valueAt returns the value at a path of the answer, such as "metadata.uid".
func (a answer) valueAt(path string) any { return valueAt(a.obj, path) }

func (a answer) textAt(path string) string { s, _ := a.valueAt(path).(string); return s }

func (a answer) itemList() []any { list, _ := a.valueAt("items").([]any); return list }

func valueAt(v any, path string) any {
	if path == "" {
		return v
	}
	for _, part := range strings.Split(path, ".") {
		switch in := v.(type) {
		case object:
			v = in[part]
		case []any:
			i := 0
			if _, err := fmt.Sscan(part, &i); err != nil || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// withValue returns a copy of an object with a value at a path.
func withValue(o object, path string, value any) object {
	out := clone(o)
	in, parts := out, strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		next, ok := in[part].(object)
		if !ok {
			next = object{}
			in[part] = next
		}
		in = next
	}
	in[parts[len(parts)-1]] = value
	return out
}

func clone(o object) object { return cloneText(string(encode(o))) }

func cloneText(text string) object {
	out := object{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(fmt.Sprintf("a test's own JSON is none: %v", err))
	}
	return out
}
