package stream

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"clusterctl/daemons/apiserver/request"
)

func addPrefix(link string) string {
	return proxiedLink("/api/v1/namespaces/a/pods/p/proxy", link, "10.0.0.1:80", "api.example.com:6443")
}

func pageResponse(kind, text string) *http.Response {
	return &http.Response{
		StatusCode:    200,
		Header:        http.Header{"Content-Type": {kind}, "Content-Length": {"9"}},
		Body:          io.NopCloser(strings.NewReader(text)),
		ContentLength: 9,
	}
}

// Links of a proxied page lead through the proxy, and the rest of the page stays unchanged.
// Proves S11.
func TestLinksOfPagesLeadThroughTheProxy(t *testing.T) {
	const p = "/api/v1/namespaces/a/pods/p/proxy"
	for text, want := range map[string]string{
		`<!DOCTYPE html><html lang=en><A HREF='/x'>x</A>`:                    `<!DOCTYPE html><html lang=en><a href="` + p + `/x">x</A>`,
		`<a href="/x?a=1&amp;b=2#c" class="y">`:                              `<a href="` + p + `/x?a=1&amp;b=2#c" class="y">`,
		`<a href="x"><a href="../y"><a href="#z"><a href="?q">`:              `<a href="x"><a href="../y"><a href="#z"><a href="?q">`,
		`<a href="https://else.example.com/x"><a href="//cdn.example.com/">`: `<a href="https://else.example.com/x"><a href="//cdn.example.com/">`,
		`<a href="http://10.0.0.1:80/x">`:                                    `<a href="` + p + `/x">`,
		`<a href="` + p + `/x">`:                                             `<a href="` + p + `/x">`,
		`<a href="javascript:go('/x')"><a href="mailto:a@b">`:                `<a href="javascript:go('/x')"><a href="mailto:a@b">`,
		`<img src="/i.png" alt="/i.png"/><link rel=icon href="/f">`:          `<img src="` + p + `/i.png" alt="/i.png"/><link rel="icon" href="` + p + `/f">`,
		`<script src="/s.js"></script><script>go("<a href='/x'>")</script>`:  `<script src="` + p + `/s.js"></script><script>go("<a href='/x'>")</script>`,
		`<form action="/a%2Fb/"><video poster=/v src=/w>`:                    `<form action="` + p + `/a%2Fb/"><video poster="` + p + `/v" src="` + p + `/w">`,
		`<!-- <a href="/x"> --><p data-href="/x" href="/x">&lt;a&gt;</p>`:    `<!-- <a href="/x"> --><p data-href="/x" href="/x">&lt;a&gt;</p>`,
		`cut off <a href="/x`:                                                `cut off <a href="/x`,
		"":                                                                   "",
	} {
		r := pageResponse("text/html; charset=utf-8", text)
		r.Body = io.NopCloser(iotest.OneByteReader(strings.NewReader(text)))
		rewritePage(r, addPrefix)
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != want || r.ContentLength != -1 || r.Header.Get("Content-Length") != "" {
			t.Errorf("%s\n got %s, %v\nwant %s", text, got, err, want)
		}
	}
}

// Responses that are not complete HTML pages are not rewritten.
// Proves S11.
func TestOtherResponsesAreNotRewritten(t *testing.T) {
	const text = `<a href="/x">`
	head := pageResponse("text/html", text)
	head.Request = httptest.NewRequest(http.MethodHead, "/", nil)
	part := pageResponse("text/html", text)
	part.StatusCode = http.StatusPartialContent
	packed := pageResponse("text/html", text)
	packed.Header.Set("Content-Encoding", "br")
	for name, r := range map[string]*http.Response{"a script": pageResponse("text/javascript", text),
		"text": pageResponse("text/plain", text), "nothing said": pageResponse("", text), "a head": head,
		"a part":              part,
		"of another encoding": packed} {
		rewritePage(r, addPrefix)
		if got, err := io.ReadAll(r.Body); string(got) != text || err != nil || r.ContentLength != 9 {
			t.Errorf("%s: %s %v", name, got, err)
		}
	}
}

// Pages may be compressed, and of any length.
// Proves S11.
func TestCompressedAndLongPagesAreRewritten(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, `<a href="/x">`); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `<a href="/api/v1/namespaces/a/pods/p/proxy/x">`
	r := pageResponse("text/html", packed.String())
	r.Header.Set("Content-Encoding", "gzip")
	rewritePage(r, addPrefix)
	if got, err := io.ReadAll(r.Body); string(got) != want || err != nil || r.Header.Get("Content-Encoding") != "" {
		t.Errorf("%s %v", got, err)
	}
	r = pageResponse("text/html", "no gzip")
	r.Header.Set("Content-Encoding", "gzip")
	rewritePage(r, addPrefix)
	if _, err := io.ReadAll(r.Body); err == nil {
		t.Error("what cannot be unpacked is taken for a page")
	}
	for _, long := range []string{"<script>" + strings.Repeat("x", 3*maxToken) + "</script>", "<p " +
		strings.Repeat("x", 3*maxToken) + ">", strings.Repeat("x", 3*maxToken)} {
		text := `<a href="/x">` + long + `<a href="/x">`
		r := pageResponse("text/html", text)
		rewritePage(r, addPrefix)
		got, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasPrefix(string(got), want) || !strings.HasPrefix(string(got[len(want):]), long) ||
			len(got) < len(text) {
			t.Errorf("%.20s: %d bytes of %d, %v", long, len(got), len(text), err)
		}
	}
}

// Escapes in the path stay as the client sent them.
// Proves S11.
func TestProxyKeepsEscapedPaths(t *testing.T) {
	for at, c := range map[string]struct{ rest, want string }{
		"/api/v1/nodes/n/proxy/a%2Fb/c":           {"/a/b/c", "/a%2Fb/c"},
		"/api/v1/nodes/n/proxy/a//b%20c":          {"/a//b c", "/a//b%20c"},
		"/api/v1/nodes/https%3An%3A1/proxy/%2F":   {"//", "/%2F"},
		"/api/v1/nodes/n/proxy/":                  {"/", "/"},
		"/api/v1/nodes/n/proxy/api/v1/nodes/n%25": {"/api/v1/nodes/n%", "/api/v1/nodes/n%25"},
	} {
		u, err := url.ParseRequestURI(at)
		if err != nil {
			t.Fatal(err)
		}
		if got := escapedProxyPath(&request.Request{HTTP: &http.Request{URL: u},
			Form: request.Form{ProxyPath: c.rest}}); got != c.want {
			t.Errorf("%s: %s, want %s", at, got, c.want)
		}
	}
	for accepts, want := range map[string]string{"": "", "gzip": "gzip", "gzip, deflate, br": "gzip", "br, deflate": "",
		"gzip;q=0": "", "*;q=0.5": "gzip", "GZIP; q=1.0": "gzip", "gzip;q=0.0, br": ""} {
		h := http.Header{"Accept-Encoding": {accepts}}
		acceptsRewritable(h)
		if got := h.Get("Accept-Encoding"); got != want {
			t.Errorf("%q becomes %q, want %q", accepts, got, want)
		}
	}
}
