package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"clusterctl/daemons/dashboard"
)

const (
	configMaps = "/k8s/api/v1/namespaces/default/configmaps"
	configMap  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
)

func TestEveryAnswerHasTheSecurityHeaders(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.signInByCode()
	for _, path := range []string{"/", "/p/object/apps/v1/deployments/shop/web", "/signin", "/app/style.css",
		"/api/session", "/k8s/api/v1/pods", "/k8s/metrics", "/nothing"} {
		got := b.do(http.MethodGet, path, "")
		policy := got.Header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
			"base-uri 'none'", "form-action 'self'", "connect-src 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy %q allows inline scripts", path, policy)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin"} {
			if values := got.Header.Values(name); len(values) != 1 || values[0] != want {
				t.Errorf("%s: %s is %q", path, name, values)
			}
		}
		isAPI := strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/k8s/")
		if isAPI && got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the answer can be cached", path)
		}
	}
}

func TestStaticFilesAreRevalidated(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.browser()
	got := b.do(http.MethodGet, "/app/style.css", "")
	tag := got.Header.Get("ETag")
	if got.StatusCode != http.StatusOK || tag == "" || got.Header.Get("Content-Type") != "text/css; charset=utf-8" {
		t.Fatalf("%s %v", got.Status, got.Header)
	}
	if got := b.do(http.MethodGet, "/app/style.css", "", set("If-None-Match", tag)); got.StatusCode !=
		http.StatusNotModified {
		t.Errorf("the same version: %s", got.Status)
	}
	for _, path := range []string{"/app/embed.go", "/app/../embed.go", "/app/%2e%2e/embed.go", "/embed.go",
		"/app/", "/app", "/index.html", "/signin.html", "/app/..%2f..%2fetc%2fpasswd"} {
		if got := b.do(http.MethodGet, path, ""); got.StatusCode == http.StatusOK {
			t.Errorf("%s is served: %s", path, got.text)
		}
	}
}

func TestRequestsForOtherHostsAreRefused(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.signInByCode()
	for _, path := range []string{"/", "/api/session", "/k8s/api/v1/pods", "/signin?code=" + w.board.NewCode()} {
		got := b.do(http.MethodGet, path, "", func(r *http.Request) { r.Host = "evil.example" })
		if got.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%s: %s", path, got.Status)
		}
	}
}

func TestChangesNeedTheTokenAndTheOriginOfAPage(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	b := w.signInByCode()
	json := set("Content-Type", "application/json")
	other := w.signInByCode()
	for name, change := range map[string]func(*http.Request){
		"no token":                   without("X-Dashboard-Token"),
		"a wrong token":              set("X-Dashboard-Token", "wrong"),
		"a token of another session": set("X-Dashboard-Token", other.csrf),
		"another origin":             set("Origin", "http://evil.example"),
		"another port":               set("Origin", "http://127.0.0.1:1"),
		"another scheme":             set("Origin", strings.Replace(w.url, "http:", "https:", 1)),
		"no origin":                  without("Origin"),
		"a hidden origin":            set("Origin", "null"),
		"a same-site page": func(r *http.Request) {
			r.Header.Del("Origin")
			r.Header.Set("Sec-Fetch-Site", "same-site")
		},
	} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if got := b.do(method, configMaps+"/a", configMap, json, change); got.StatusCode != http.StatusForbidden {
				t.Errorf("%s with %s: %s", method, name, got.Status)
			}
		}
		if got := b.do(http.MethodPost, "/signout", "", change); got.StatusCode != http.StatusForbidden {
			t.Errorf("sign out with %s: %s", name, got.Status)
		}
		if got := b.do(http.MethodPost, "/api/access", "[]", change); got.StatusCode != http.StatusForbidden {
			t.Errorf("access with %s: %s", name, got.Status)
		}
	}
	if got := b.do(http.MethodPost, configMaps, configMap, json); got.StatusCode != http.StatusCreated {
		t.Errorf("a page of the dashboard: %s %s", got.Status, got.text)
	}
	fetched := func(r *http.Request) {
		r.Header.Del("Origin")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if got := b.do(http.MethodDelete, configMaps+"/a", "", fetched); got.StatusCode != http.StatusOK {
		t.Errorf("a page of the dashboard without Origin: %s %s", got.Status, got.text)
	}
}

func TestAPIsNeedASession(t *testing.T) {
	w := newWorld(t, dashboard.SignInByCommand)
	for _, path := range []string{"/api/session", "/api/kinds", "/api/overview", "/api/nodes", "/api/why",
		"/api/certificates", "/api/etcd", "/api/live", "/k8s/api/v1/pods"} {
		if got := w.browser().do(http.MethodGet, path, ""); got.StatusCode != http.StatusUnauthorized ||
			!strings.Contains(got.text, `"kind":"Status"`) {
			t.Errorf("%s: %s %s", path, got.Status, got.text)
		}
	}
	if got := w.browser().do(http.MethodPost, "/api/access", "[]"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("/api/access: %s", got.Status)
	}
}
