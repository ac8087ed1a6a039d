package proxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// upgrader starts a backend that responds with the offered protocols, or switches to the protocol in the path.
func upgrader(t *testing.T) string {
	return startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		to, switches := strings.CutPrefix(r.URL.Path, "/switch/")
		if !switches {
			fmt.Fprintf(w, "%s|%s|%s", strings.Join(r.Header["Upgrade"], "+"),
				strings.Join(r.Header["Connection"], "+"), strings.Join(r.Header["Http2-Settings"], "+"))
			return
		}
		nc, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %s\r\n\r\n", to)
	})
}

// If a client upgrades the connection to HTTP/2, the proxy does not see the following requests (RFC 9110, section 7.8:
// Upgrade is a list).
func TestHTTP2IsNotOfferedToBackends(t *testing.T) {
	p := startProxy(t, nil)
	p.addRoute("a.example", "/", []string{upgrader(t)})
	for lines, want := range map[string]string{
		"Connection: Upgrade\r\nUpgrade: websocket":                                       "websocket|upgrade|",
		"Connection: upgrade , x\r\nUpgrade: a/1, b":                                      "a/1, b|upgrade|",
		"Connection: Upgrade\r\nUpgrade: a\r\nUpgrade: b":                                 "a,b|upgrade|",
		"Connection: Upgrade\r\nUpgrade: h2c":                                             "||",
		"Connection: Upgrade\r\nUpgrade: H2C":                                             "||",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk": "||",
		"Connection: Upgrade\r\nUpgrade: h2c, x":                                          "x|upgrade|",
		"Connection: Upgrade\r\nUpgrade: x, h2c":                                          "x|upgrade|",
		"Connection: Upgrade\r\nUpgrade: x,\th2c\t, y":                                    "x, y|upgrade|",
		"Connection: Upgrade\r\nUpgrade: h2c,":                                            "||",
		"Connection: Upgrade\r\nUpgrade: ,h2c":                                            "||",
		"Connection: Upgrade\r\nUpgrade: h2c/1, websocket":                                "websocket|upgrade|",
		"Connection: Upgrade\r\nUpgrade: x\r\nUpgrade: h2c":                               "x|upgrade|",
		"Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: x":                               "x|upgrade|",
		"Connection: Upgrade\r\nUpgrade: \"h2c\", h2c;x, h 2c, websocket":                 "websocket|upgrade|",
		"Connection: Upgrade\r\nUpgrade: websocket/, /h2c":                                "||",
		"Upgrade: websocket":                                                              "||",
		"Connection: Upgraded\r\nUpgrade: websocket":                                      "||",
	} {
		_, r := p.sendRaw("GET / HTTP/1.1\r\nHost: a.example\r\n" + lines + "\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if got := readBody(t, res, err); got != want {
			t.Errorf("%q: the backend saw %q, want %q", lines, got, want)
		}
	}
}

func TestBackendsSwitchOnlyToOfferedProtocols(t *testing.T) {
	p := startProxy(t, nil)
	p.addRoute("a.example", "/", []string{upgrader(t)})
	for _, c := range []struct {
		offer, answer string
		status        int
	}{
		{"websocket", "websocket", 101}, {"websocket", "WebSocket", 101}, {"a, b", "b", 101}, {"a, b", "a, b", 101},
		{"websocket", "h2c", 502}, {"h2c", "h2c", 502}, {"h2c, websocket", "h2c", 502},
		{"websocket", "websocket, h2c", 502}, {"", "websocket", 502}, {"websocket", "", 502},
	} {
		lines := ""
		if c.offer != "" {
			lines = "Connection: Upgrade\r\nUpgrade: " + c.offer + "\r\n"
		}
		_, r := p.sendRaw(
			"GET /switch/" + strings.ReplaceAll(c.answer, " ",
				"%20") + " HTTP/1.1\r\nHost: a.example\r\n" + lines + "\r\n",
		)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(c, err)
		}
		res.Body.Close()
		if res.StatusCode != c.status {
			t.Errorf("offered %q, the backend switches to %q: %d, want %d", c.offer, c.answer, res.StatusCode, c.status)
		}
	}
}

func TestElementsOfTEAndForwardedProtoAreParsed(t *testing.T) {
	p := startProxy(t, func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	p.addRoute("a.example", "/", []string{startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "te %s", r.Header.Get("Te"))
	})}, "force-ssl-redirect=true")
	for lines, want := range map[string]string{
		"X-Forwarded-Proto: https\r\nTE: trailers":               "200 te trailers",
		"X-Forwarded-Proto: https\r\nTE: deflate;q=0.5,Trailers": "200 te trailers",
		"X-Forwarded-Proto: https\r\nTE: xtrailersx":             "200 te ",
		"X-Forwarded-Proto: https, http":                         "200 te ",
		"X-Forwarded-Proto: http, https":                         "308 ",
	} {
		_, r := p.sendRaw("GET / HTTP/1.1\r\nHost: a.example\r\n" + lines + "\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(lines, err)
		}
		if got := fmt.Sprint(res.StatusCode, " ", readBody(t, res, nil)); got != want {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
}
