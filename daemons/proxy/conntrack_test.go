package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/config"
)

// The defaults are upstream's: https://kubernetes.io/docs/reference/command-line-tools-reference/kube-proxy/
func TestConnectionsAreTrackedAsConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Proxy)
		before map[string]string
		want   map[string]string // changed files
	}{
		"by default": {nil, map[string]string{"nf_conntrack_max": "65536",
			"nf_conntrack_tcp_timeout_established": "432000", "nf_conntrack_tcp_timeout_close_wait": "60"},
			map[string]string{"nf_conntrack_max": "262144", "nf_conntrack_tcp_timeout_established": "86400",
				"nf_conntrack_tcp_timeout_close_wait": "3600"}},
		"a larger table stays": {nil, map[string]string{"nf_conntrack_max": "1048576"},
			map[string]string{"nf_conntrack_max": "1048576"}},
		"few cores": {func(p *config.Proxy) { p.ConntrackMaxPerCore = 1 }, nil,
			map[string]string{"nf_conntrack_max": "131072", "hashsize": "32768"}},
		"more lists stay": {nil, map[string]string{"hashsize": "262144"}, map[string]string{"hashsize": "262144"}},
		"nothing": {func(p *config.Proxy) {
			p.ConntrackMaxPerCore, p.ConntrackTCPEstablished, p.ConntrackTCPCloseWait = 0, 0, 0
		}, nil, map[string]string{"nf_conntrack_max": "0", "hashsize": "0",
			"nf_conntrack_tcp_timeout_established": "0", "nf_conntrack_tcp_timeout_close_wait": "0"}},
		"datagrams": {func(p *config.Proxy) {
			p.ConntrackUDP, p.ConntrackUDPStream = 30*time.Second,
				1500*time.Millisecond
		}, nil,
			map[string]string{"nf_conntrack_udp_timeout": "30", "nf_conntrack_udp_timeout_stream": "2"}},
		"liberal": {func(p *config.Proxy) { p.ConntrackTCPBeLiberal = true }, nil,
			map[string]string{"nf_conntrack_tcp_be_liberal": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			usual := map[string]string{"hashsize": "65536",
				"nf_conntrack_max": "262144", "nf_conntrack_tcp_timeout_established": "86400",
				"nf_conntrack_tcp_timeout_close_wait": "3600",
				"nf_conntrack_udp_timeout":            "0", "nf_conntrack_udp_timeout_stream": "0",
				"nf_conntrack_tcp_be_liberal": "0"}
			for file := range usual {
				text := "0"
				if v, ok := c.before[file]; ok {
					text = v
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				if v, ok := c.want[file]; ok {
					usual[file] = v
				}
			}
			cfg := config.DefaultProxy()
			if c.change != nil {
				c.change(&cfg)
			}
			if err := setConntrack(conntrackFiles{dir, filepath.Join(dir, "hashsize")}, &cfg, 8); err != nil {
				t.Fatal(err)
			}
			for file, want := range usual {
				text, err := os.ReadFile(filepath.Join(dir, file))
				if got := strings.TrimSpace(string(text)); err != nil || got != want {
					t.Errorf("%s is %s, %v; want %s", file, got, err, want)
				}
			}
		})
	}
}

func TestErrorsNameTheSettingThatFailed(t *testing.T) {
	cfg := config.DefaultProxy()
	err := setConntrack(conntrackFiles{filepath.Join(t.TempDir(), "none"), "none/hashsize"}, &cfg, 8)
	if err == nil || !strings.Contains(err.Error(), "nf_conntrack_max") ||
		!strings.Contains(err.Error(), "nf_conntrack_tcp_timeout_close_wait") {
		t.Errorf("%v", err)
	}
}

func TestTheMetricsServerReportsTheMode(t *testing.T) {
	d := &daemon{mode: modeIPTables}
	server := httptest.NewServer(d.metrics(http.NotFoundHandler()))
	defer server.Close()
	res, err := http.Get(server.URL + "/proxyMode")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || string(text) != "iptables" || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%q of %s, %v", text, res.Header.Get("Content-Type"), err)
	}
	if res, err := http.Get(server.URL + "/metrics"); err != nil || res.StatusCode != http.StatusNotFound {
		t.Errorf("other paths: %v, %v", res, err)
	}
}
