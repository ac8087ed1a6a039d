package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/daemons/api"
)

func TestPagesReportTheDaemonAndItsFlags(t *testing.T) {
	env := NewEnv(slog.New(slog.DiscardHandler))
	env.About.Name, env.About.Flags, env.About.Config = "kube-x", map[string]string{
		"b": "2",
		"a": "1",
	}, map[string]any{
		"kubeletconfig": map[string]int{"port": 1},
	}
	for _, c := range []struct {
		path, accept string
		code         int
		want         string
	}{
		{"/statusz", "", 200, "kube-x statusz\n"}, {"/statusz", "text/plain", 200, "Emulation version: 1."},
		{"/statusz", "text/html", 406, ""},
		{"/flagz", "", 200, "\na=1\nb=2\n"}, {"/configz", "", 200, `{"kubeletconfig":{"port":1}}`}, {"/debug/pprof/", "", 404, ""},
		{"/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", 200, `"kind":"Statusz"`},
		{"/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz", 200, `"apiVersion":"config.k8s.io/v1alpha1"`},
		{"/flagz", "application/json;v=v9;g=config.k8s.io;as=Flagz", 406, ""},
	} {
		r, w := httptest.NewRequest("GET", c.path, nil), httptest.NewRecorder()
		r.Header.Set("Accept", c.accept)
		env.Pages(false).ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s as %q: %d %s", c.path, c.accept, w.Code, w.Body)
		}
		if strings.HasPrefix(c.accept, "application/json") && c.code == 200 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %s", c.path, w.Body)
		}
	}
}

// fakeReviewer implements AccessReviewer for an API server that lets members of system:monitoring read everything
// except profiles.
type fakeReviewer struct{}

// TokenUser implements AccessReviewer.
func (fakeReviewer) TokenUser(_ context.Context, token string) (api.User, bool, error) {
	return api.User{
		Name:   "system:serviceaccount:monitoring:prometheus",
		Groups: []string{token},
	}, strings.HasPrefix(token, "system:"), nil
}

// IsPathAllowed implements AccessReviewer.
func (fakeReviewer) IsPathAllowed(_ context.Context, user api.User, path string) (bool, error) {
	if path == "/flagz" && user.InGroup("away") {
		return false, errors.New("no API server answers")
	}
	return user.InGroup("system:monitoring"), nil
}

// The pages about a daemon and its metrics are only for clients that the API server authorizes. Other certificates of
// the cluster's CA are not enough. Profiles are for administrators only.
func TestPagesNeedAuthorization(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca, err := certs.NewCA("test", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(path, ca.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- NewEnv(slog.New(slog.DiscardHandler)).ServeHealth(ctx, "127.0.0.1", port, "", "", path, "", true,
			fakeReviewer{})
	}()
	defer func() { cancel(); <-done }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	for _, c := range []struct {
		path, group, token string
		want               int
	}{
		{"/livez", "", "", 200}, {"/statusz", "", "", 401}, {"/flagz", "system:nodes", "", 403},
		{"/flagz", "system:monitoring", "", 200}, {"/statusz", "system:masters", "", 200},
		{"/debug/pprof/", "system:monitoring", "", 403}, {"/debug/pprof/", "system:masters", "", 200},
		{"/metrics", "", "", 401}, {"/metrics", "system:nodes", "", 403}, {"/metrics", "system:monitoring", "", 200},
		{"/metrics", "system:masters", "", 200},
		{"/metrics", "", "system:monitoring", 200}, {"/metrics", "", "system:serviceaccounts", 403},
		{"/metrics", "", "made up", 401},
		{"/flagz", "away", "", 500}, {"/livez", "", "made up", 200},
	} {
		if got := requestPage(t, ca, done, "https://"+ln.Addr().String()+c.path, c.group, c.token); got != c.want {
			t.Errorf("%s by %q or %q: %d, want %d", c.path, c.group, c.token, got, c.want)
		}
	}
}

// requestPage requests a page as a member of a group or with a token, and returns the status code. It waits until the
// server listens. done is the result of the server.
func requestPage(t *testing.T, ca certs.Pair, done chan error, url, group, token string) int {
	config := &tls.Config{InsecureSkipVerify: true} // the server's certificate does not matter here
	if group != "" {
		pair, err := certs.Issue(
			ca,
			certs.Request{
				CommonName:    "someone",
				Organizations: []string{group},
				Usages:        []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			},
			time.Now(),
		)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{c}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	for {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		if err != nil {
			select {
			case err := <-done:
				t.Fatal(err)
			case <-time.After(time.Millisecond):
			}
			continue
		}
		answer.Body.Close()
		return answer.StatusCode
	}
}

// A daemon that serves metrics accepts a new client authority, and no longer the old one, without a restart.
func TestReplacedClientAuthoritiesApplyToMetrics(t *testing.T) {
	now := time.Now()
	first, second := newAuthority(t, now), newAuthority(t, now)
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, first.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- NewEnv(slog.New(slog.DiscardHandler)).ServeHealth(ctx, "127.0.0.1", port, "", "", path, "", true,
			fakeReviewer{})
	}()
	defer func() { cancel(); <-done }()
	believed := func(ca certs.Pair) bool {
		pair, err := certs.Issue(
			ca,
			certs.Request{
				CommonName:    "prometheus",
				Organizations: []string{"system:monitoring"},
				Usages:        []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			},
			now,
		)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{
			Transport: &http.Transport{
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c}},
				DisableKeepAlives: true,
			},
		}
		answer, err := client.Get("https://" + ln.Addr().String() + "/metrics")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	eventually := func(what string, matches func() bool) {
		t.Helper()
		for limit := time.Now().Add(30 * time.Second); !matches(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal(what)
			}
		}
	}
	eventually("the authority that there was at the start is not believed", func() bool { return believed(first) })
	if believed(second) {
		t.Error("a stranger's authority is believed")
	}
	if err := os.WriteFile(path, second.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, now, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	eventually("the authority that took its place is not believed", func() bool { return believed(second) })
	if believed(first) {
		t.Error("the former authority is still believed")
	}
}
