package dev

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"
)

// S07: the API server speaks HTTP/2 as RFC 9113 and RFC 7541 say, by the tests of h2spec, the strict ones included.
func TestHTTP2IsSpokenAsSpecifiedS07(t *testing.T) {
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	h2spec := exec.CommandContext(t.Context(), filepath.Join(programs, "h2spec"),
		"--tls", "--insecure", "--strict", "--host", server.Hostname(), "--port", server.Port(), "--path", "/version", "--timeout", "10")
	out, err := h2spec.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
