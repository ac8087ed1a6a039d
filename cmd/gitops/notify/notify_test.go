package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

const secret = "t0ken-of-the-test"

// recorded is a request that a server has received.
type recorded struct {
	path   string
	header http.Header
	body   string
}

// startServer starts a server with TLS that answers with a code, and returns its URL, its CA and its requests.
func startServer(t *testing.T, code int, header http.Header) (string, []byte, chan recorded) {
	requests := make(chan recorded, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- recorded{r.URL.EscapedPath(), r.Header, string(text)}
		for k := range header {
			w.Header().Set(k, header.Get(k))
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server.URL, ca, requests
}

func newTarget(kind, url string, ca []byte) gitops.Target {
	return gitops.Target{Namespace: gitsource.Namespace,
		Notification: gitsource.Notification{Type: kind, URL: url, Secret: "hook"},
		Data:         map[string][]byte{"token": []byte(secret + "\n"), "ca.crt": ca}}
}

var failed = gitops.Notification{Source: "kube-system/platform", URL: "git@git.example:team/group/platform.git",
	Revision: "main@sha1:0123456789abcdef0123456789abcdef01234567", Ready: "False", Reason: "RenderFailed",
	Message: strings.Repeat("é", 200), Time: time.Unix(0, 0).UTC()}

func TestWebhooksAreSigned(t *testing.T) {
	url, ca, requests := startServer(t, http.StatusNoContent, nil)
	if err := (Sender{}).Send(t.Context(), newTarget("webhook", url+"/x?y=z", ca), failed); err != nil {
		t.Fatal(err)
	}
	got := <-requests
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(got.body))
	if got.header.Get("X-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)) || got.path != "/x" ||
		got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the request is %+v", got)
	}
	var n gitops.Notification
	if err := json.Unmarshal([]byte(got.body), &n); err != nil || n != failed {
		t.Errorf("the body is %s, %v", got.body, err)
	}
	to := newTarget("webhook", "", ca)
	to.Data["url"] = []byte(url + "/secret\n")
	if err := (Sender{}).Send(t.Context(), to, failed); err != nil {
		t.Fatal(err)
	}
	if got := <-requests; got.path != "/secret" {
		t.Errorf("the URL of the Secret is not used: %s", got.path)
	}
}

func TestStatusesOfCommitsHaveTheFormOfTheServer(t *testing.T) {
	for _, row := range []struct{ kind, path, header, value, state string }{
		{"github", "/repos/team/group/platform/statuses/", "Authorization", "Bearer " + secret, "failure"},
		{"gitea", "/repos/team/group/platform/statuses/", "Authorization", "token " + secret, "failure"},
		{"gitlab", "/projects/team%2Fgroup%2Fplatform/statuses/", "PRIVATE-TOKEN", secret, "failed"},
	} {
		url, ca, requests := startServer(t, http.StatusCreated, nil)
		if err := (Sender{}).Send(t.Context(), newTarget(row.kind, url+"/api/", ca), failed); err != nil {
			t.Fatalf("%s: %v", row.kind, err)
		}
		got := <-requests
		var body map[string]string
		if err := json.Unmarshal([]byte(got.body), &body); err != nil {
			t.Fatal(err)
		}
		if got.path != "/api"+row.path+failed.Commit() || got.header.Get(row.header) != row.value ||
			body["state"] != row.state || len([]rune(body["description"])) > maxDescription ||
			body["context"]+body["name"] != "clusterctl-gitops/kube-system/platform" {
			t.Errorf("%s: the request is %+v", row.kind, got)
		}
	}
}

func TestTheAPIOfAServerFollowsFromTheSource(t *testing.T) {
	for _, row := range []struct{ kind, source, want string }{
		{"github", "https://github.com/o/r.git", "https://api.github.com/repos/o/r/statuses/c"},
		{"github", "git@github.com:o/r.git", "https://api.github.com/repos/o/r/statuses/c"},
		{"github", "https://git.example/o/r", "https://git.example/api/v3/repos/o/r/statuses/c"},
		{"gitea", "ssh://git@git.example:2222/o/r.git", "https://git.example/api/v1/repos/o/r/statuses/c"},
		{"gitea", "https://git.example:8443/o/r.git", "https://git.example:8443/api/v1/repos/o/r/statuses/c"},
		{"gitlab", "https://git.example/a/b/c.git", "https://git.example/api/v4/projects/a%2Fb%2Fc/statuses/c"},
		{"gitlab", "https://git.example/a", ""},
		{"github", "git@git.example:../../x", ""},
	} {
		m, err := compose(newTarget(row.kind, "", nil), gitops.Notification{URL: row.source, Revision: "m@sha1:c"})
		got := ""
		if err == nil {
			got = m.url.String()
		}
		if got != row.want {
			t.Errorf("%s of %s is sent to %q, %v, want %q", row.kind, row.source, got, err, row.want)
		}
	}
}

func TestFailuresSayWhetherARetryHelps(t *testing.T) {
	for code, isPermanent := range map[int]bool{302: true, 400: true, 401: true, 404: true, 429: false, 500: false,
		503: false} {
		url, ca, requests := startServer(t, code, http.Header{"Location": {"https://127.0.0.1:1/"}})
		err := (Sender{}).Send(t.Context(), newTarget("webhook", url+"/"+secret, ca), failed)
		var permanent interface{ Permanent() bool }
		if err == nil || errors.As(err, &permanent) != isPermanent || strings.Contains(err.Error(), secret) {
			t.Errorf("%d: %v", code, err)
		}
		if len(requests) != 1 {
			t.Errorf("%d: %d requests were sent", code, len(requests))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := (Sender{}).Send(ctx, newTarget("webhook", "https://127.0.0.1:1/"+secret, nil), failed)
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// The sources of tenants reach neither the machine itself nor hosts that the settings do not allow.
func TestTenantsReachOnlyAllowedHosts(t *testing.T) {
	url, ca, requests := startServer(t, http.StatusOK, nil)
	tenant := newTarget("webhook", url, ca)
	tenant.Namespace = "shop"
	if err := (Sender{}).Send(t.Context(), tenant, failed); err == nil ||
		!strings.Contains(err.Error(), "reserved for the machine") {
		t.Errorf("a tenant reaches the machine: %v", err)
	}
	for _, row := range []struct {
		namespace, url string
		hosts          []string
		refused        bool
	}{
		{"shop", "https://hooks.example/", nil, false},
		{"shop", "https://HOOKS.example/", []string{"hooks.example"}, false},
		{"shop", "https://a.hooks.example/", []string{"*.hooks.example"}, false},
		{"shop", "https://hooks.example/", []string{"*.hooks.example"}, true},
		{"shop", "https://hooks.example.evil.example/", []string{"hooks.example"}, true},
		{"shop", "https://evilhooks.example/", []string{"*.hooks.example"}, true},
		{"shop", "http://hooks.example/", nil, true},
		{"shop", "http://127.0.0.1/", nil, true},
		{"kube-system", "https://other.example/", []string{"hooks.example"}, false},
		{"kube-system", "http://127.0.0.1:8080/", nil, false},
		{"kube-system", "http://hooks.example/", nil, true},
	} {
		m, err := compose(gitops.Target{Notification: gitsource.Notification{Type: "webhook", URL: row.url},
			Data: map[string][]byte{"token": []byte(secret)}}, failed)
		if err != nil {
			t.Fatal(err)
		}
		if err := (Sender{Hosts: row.hosts}).check(row.namespace, m.url); (err != nil) != row.refused {
			t.Errorf("%s to %s with %q: %v", row.namespace, row.url, row.hosts, err)
		}
	}
	if len(requests) > 0 {
		t.Error("a request reached the server")
	}
}

func TestASecretWithoutATokenIsAnError(t *testing.T) {
	to := newTarget("webhook", "https://hooks.example/", nil)
	to.Data = map[string][]byte{"token": []byte(" ")}
	if err := (Sender{}).Send(t.Context(), to, failed); err == nil || !strings.Contains(err.Error(), `no key "token"`) {
		t.Errorf("%v", err)
	}
	if err := (Sender{}).Send(t.Context(), newTarget("webhook", "", nil), failed); err == nil ||
		!strings.Contains(err.Error(), "has a URL") {
		t.Errorf("%v", err)
	}
}
