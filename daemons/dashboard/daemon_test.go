package dashboard_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/dashboard"
	"clusterctl/daemons/run"
)

// startDaemon runs the daemon until the test ends, and returns a browser for it.
func startDaemon(t *testing.T, change func(*world, *config.Dashboard)) (*browser, run.Env) {
	t.Helper()
	w := &world{t: t, log: &syncBuffer{}}
	w.api, w.users = startAPI(t)
	cfg := config.DefaultDashboard()
	cfg.Kubeconfig, cfg.HealthAddress = filepath.Join(t.TempDir(), "kubeconfig"), ""
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q, "+
		"insecure-skip-tls-verify: true}}]\nusers: [{name: a, user: {token: %s}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", w.api.Host, adminToken)
	if err := os.WriteFile(cfg.Kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(w, &cfg)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "https://" + ln.Addr().String()
	env := run.NewEnv(slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- dashboard.RunWith(ctx, cfg, env, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the daemon is ready", func() bool { return env.Health.Err(true) == nil })
	return &browser{w: w, client: &http.Client{Jar: jar, Timeout: 20 * time.Second,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, env
}

func TestTheDaemonUsesOnlyTheCredentialsOfVisitors(t *testing.T) {
	b, _ := startDaemon(t, nil)
	if got := b.do(http.MethodGet, "/k8s/api/v1/pods", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %s", got.Status)
	}
	if got := b.sendToken("wrong"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %s", got.Status)
	}
	got := b.sendToken(readerToken)
	if got.StatusCode != http.StatusSeeOther {
		t.Fatalf("sign in: %s %s", got.Status, got.text)
	}
	cookie := got.Header.Get("Set-Cookie")
	if !strings.HasPrefix(cookie, "__Host-clusterctl-dashboard=") || !strings.Contains(cookie, "; Secure") ||
		!strings.Contains(cookie, "; HttpOnly") || !strings.Contains(cookie, "; SameSite=Strict") {
		t.Errorf("the cookie: %s", cookie)
	}
	if user := b.readSession()["user"]; user != "reader" {
		t.Errorf("the user is %v", user)
	}
	if got := b.do(http.MethodGet, "/k8s/api/v1/secrets", ""); got.StatusCode != http.StatusForbidden {
		t.Errorf("Secrets: %s", got.Status)
	}
	if got.Header.Get("Strict-Transport-Security") == "" {
		t.Error("browsers may use HTTP")
	}
	for _, headers := range b.w.users.headers {
		if a := headers.Get("Authorization"); a == "Bearer "+adminToken {
			t.Error("the dashboard used the kubeconfig's token")
		}
	}
}

func TestTheDaemonAnswersForTheNamesOfItsCertificate(t *testing.T) {
	dir := t.TempDir()
	ca, err := certs.NewCA("ca", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := certs.Issue(ca, certs.MetricsServer([]string{"192.0.2.1"}), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, text := range map[string][]byte{certificate: pair.Cert, key: pair.Key} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, _ := startDaemon(t, func(_ *world, c *config.Dashboard) {
		c.TLSCertFile, c.TLSPrivateKeyFile, c.Hostnames = certificate, key, []string{"board.example"}
	})
	for host, want := range map[string]int{"192.0.2.1": 200, "192.0.2.1:443": 200, "board.example": 200,
		"BOARD.example:8443": 200, "evil.example": 421, "127.0.0.9": 421, "board.example.evil.example": 421,
		"[::1]": 421,
	} {
		got := b.do(http.MethodGet, "/signin", "", func(r *http.Request) { r.Host = host })
		if got.StatusCode != want {
			t.Errorf("%s: %s, want %d", host, got.Status, want)
		}
	}
}

func TestTheDaemonUsesTheAPIServersThatAnswer(t *testing.T) {
	b, _ := startDaemon(t, func(w *world, c *config.Dashboard) {
		_, host, _ := strings.Cut(w.api.Host, "https://")
		c.Kubeconfig, c.APIServers = "", []string{"127.0.0.1:1", host}
		c.CertificateAuthority = filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(c.CertificateAuthority, w.api.CAData, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if got := b.sendToken(readerToken); got.StatusCode != http.StatusSeeOther {
		t.Errorf("sign in: %s %s", got.Status, got.text)
	}
}
