package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestConnectionsOfTheSameUserAreFound(t *testing.T) {
	var requests []*http.Request
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !isOwnConnection(r) {
			t.Error("a connection of this process is not found")
		}
		requests = append(requests, r)
	}))
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	other := requests[0].Clone(requests[0].Context())
	other.RemoteAddr = "127.0.0.1:1"
	if isOwnConnection(other) {
		t.Error("a connection that does not exist is found")
	}
}

func TestOwnersOfSocketsAreReadFromTheKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tcp6")
	text := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n" +
		"   1: 0000000000000000FFFF00000100007F:D432 0000000000000000FFFF00000100007F:1F90 01 0:0 0:0 0  1001   0 1\n" +
		"   2: 00000000000000000000000001000000:D433 00000000000000000000000001000000:1F90 01 0:0 0:0 0  1002   0 1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		uid      int
	}{
		{"127.0.0.1:8080", "127.0.0.1:54321", 1000}, {"127.0.0.1:54322", "127.0.0.1:8080", 1001},
		{"[::1]:54323", "[::1]:8080", 1002}, {"127.0.0.1:54321", "127.0.0.1:8080", -1},
		{"127.0.0.2:8080", "127.0.0.1:54321", -1},
	} {
		uid, ok := socketOwner(path, netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to))
		if ok != (c.uid >= 0) || ok && uid != c.uid {
			t.Errorf("from %s to %s: %d, %v", c.from, c.to, uid, ok)
		}
	}
}

func TestLocalCodesAreOfNoUseToOthers(t *testing.T) {
	c := newCodes(time.Now)
	code := c.issue(true)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/signin", nil)
	if c.use(code, r) {
		t.Error("a request of an unknown process uses a local code")
	}
	if c.use(code, r) || !c.use(c.issue(false), r) {
		t.Error("codes are not distinguished")
	}
	for range 2 * maxCodes {
		c.issue(false)
	}
	if len(c.issued) > maxCodes {
		t.Errorf("%d codes", len(c.issued))
	}
}
