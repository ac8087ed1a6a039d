package gitops_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

const hookToken = "hook-token"

// putToken writes a Secret with a token.
func (w *world) putToken(name, token string) {
	w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Secret", Namespace: gitsource.Namespace, Name: name},
		func(content map[string]any) {
			content["data"] = map[string]any{"token": base64.StdEncoding.EncodeToString([]byte(token))}
		})
}

// sign returns the HMAC of a body in hexadecimal digits.
func sign(token, body string) string {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// headersOf returns the headers of a push, as a server of a type sends them.
func headersOf(kind, token, body string) map[string]string {
	switch kind {
	case "github":
		return map[string]string{"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=" + sign(token, body)}
	case "gitlab":
		return map[string]string{"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": token}
	case "gitea":
		return map[string]string{"X-Gitea-Event": "push", "X-Gitea-Signature": sign(token, body)}
	}
	return map[string]string{"X-Signature": "sha256=" + sign(token, body)}
}

// receiver returns the receiver of the world's controller.
func (w *world) receiver() *gitops.Receiver {
	w.t.Helper()
	r, err := gitops.NewReceiver(w.controller)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// send sends a request to a receiver, and returns the answer.
func send(r http.Handler, method, path, body string, headers map[string]string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	for k, v := range headers {
		request.Header.Set(k, v)
	}
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, request)
	return answer
}

// Proves P06.
func TestAWebhookRequestsAReconciliationOfWhatWasPushed(t *testing.T) {
	for _, kind := range gitsource.ReceiverTypes {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.putToken("hook", hookToken+"\n")
			first := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
			w.declare("platform", "interval: 24h\nreceiver: {type: "+kind+", secret: hook}")
			s := w.ready("platform", "True", "", first)
			message := condition(s, gitsource.ConditionReceiving)
			if !strings.Contains(message, "/hooks/kube-system/platform") {
				t.Errorf("the condition is %q", message)
			}
			r := w.receiver()
			body := `{"ref":"refs/heads/main","repository":{"default_branch":"main"}}`
			const path = "/hooks/kube-system/platform"
			got := send(r, "POST", path, body, headersOf(kind, hookToken, body))
			if got.Code != http.StatusAccepted {
				t.Fatalf("a push is answered with %d %s", got.Code, got.Body)
			}
			second := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two")})
			got = send(r, "POST", path, body, headersOf(kind, hookToken, body))
			if got.Code != http.StatusAccepted {
				t.Fatalf("a replay is answered with %d %s", got.Code, got.Body)
			}
			w.ready("platform", "True", "", second)
		})
	}
}

// condition returns the reason and the message of a condition, or "".
func condition(s *gitops.Source, kind string) string {
	for _, c := range s.Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// A client without the token learns neither which sources exist nor which of them have receivers.
func TestARequestWithoutASignatureLearnsNothing(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	for _, kind := range gitsource.ReceiverTypes {
		w.declare(kind, "interval: 24h\nreceiver: {type: "+kind+", secret: hook}")
	}
	w.declare("none", "interval: 24h")
	for _, kind := range gitsource.ReceiverTypes {
		w.until(kind+" receives", func() error {
			if got := condition(w.source(kind), gitsource.ConditionReceiving); got == "" {
				return errors.New("it has no condition")
			}
			return nil
		})
	}
	r := w.receiver()
	const body = `{"ref":"refs/heads/main"}`
	want := send(r, "POST", "/hooks/kube-system/missing", body, headersOf("github", hookToken, body))
	if want.Code != http.StatusNotFound || strings.Contains(want.Body.String(), "kube-system") {
		t.Errorf("an unknown source is answered with %d %s", want.Code, want.Body)
	}
	type request struct {
		method, path string
		headers      map[string]string
	}
	requests := []request{
		{"POST", "/", nil}, {"POST", "/hooks/", nil}, {"POST", "/hooks/github", nil}, {"GET", "/hooks/x/y", nil},
		{"POST", "/hooks/kube-system/none", headersOf("github", hookToken, body)},
		{"POST", "/hooks/kube-system/github/", headersOf("github", hookToken, body)},
		{"POST", "/other/kube-system/github", headersOf("github", hookToken, body)},
		{"GET", "/hooks/kube-system/github", headersOf("github", hookToken, body)},
	}
	for _, kind := range gitsource.ReceiverTypes {
		path := "/hooks/kube-system/" + kind
		requests = append(requests, request{"POST", path, nil}, request{"GET", path, nil},
			request{"POST", path, headersOf(kind, "", body)}, request{"POST", path, headersOf(kind, "other", body)},
			request{"POST", path, headersOf(kind, hookToken, body+" ")})
		for _, other := range gitsource.ReceiverTypes {
			if other != kind {
				requests = append(requests, request{"POST", path, headersOf(other, hookToken, body)})
			}
		}
	}
	fetched := w.repo.Fetched()
	for _, q := range requests {
		if q.path == "/hooks/kube-system/gitlab" && q.headers["X-Gitlab-Token"] == hookToken {
			continue // GitLab signs no body
		}
		got := send(r, q.method, q.path, body, q.headers)
		if got.Code != want.Code || got.Body.String() != want.Body.String() ||
			fmt.Sprint(got.Header()) != fmt.Sprint(want.Header()) {
			t.Errorf("%s %s %v: %d %s %v", q.method, q.path, q.headers, got.Code, got.Body, got.Header())
		}
	}
	for _, algorithm := range []string{"sha1=", "", "sha256:"} {
		got := send(r, "POST", "/hooks/kube-system/github", body,
			map[string]string{"X-Hub-Signature-256": algorithm + sign(hookToken, body)})
		if got.Code != want.Code {
			t.Errorf("a signature with %q is answered with %d", algorithm, got.Code)
		}
	}
	if got := w.repo.Fetched(); got != fetched {
		t.Errorf("the requests caused %d fetches", got-fetched)
	}
}

func TestAPushOfAnotherReferenceIsIgnored(t *testing.T) {
	for _, row := range []struct {
		spec, body, event string
		want              int
	}{
		{"branch: main", `{"ref":"refs/heads/main"}`, "push", http.StatusAccepted},
		{"branch: main", `{"ref":"refs/heads/main2"}`, "push", http.StatusOK},
		{"branch: main", `{"ref":"refs/tags/main"}`, "push", http.StatusOK},
		{"branch: main", `{"ref":"refs/heads/main"}`, "status", http.StatusOK},
		{"branch: main", `not JSON`, "push", http.StatusAccepted},
		{"", `{"ref":"refs/heads/main","repository":{"default_branch":"main"}}`, "push", http.StatusAccepted},
		{"", `{"ref":"refs/heads/dev","repository":{"default_branch":"main"}}`, "push", http.StatusOK},
		{"", `{"ref":"refs/heads/dev","project":{"default_branch":"main"}}`, "push", http.StatusOK},
		{"tag: v1", `{"ref":"refs/tags/v1"}`, "push", http.StatusAccepted},
		{"tag: v1", `{"ref":"refs/heads/v1"}`, "push", http.StatusOK},
		{"semver: 1.x", `{"ref":"refs/tags/v1.2.3"}`, "push", http.StatusAccepted},
		{"semver: 1.x", `{"ref":"refs/tags/nightly"}`, "push", http.StatusOK},
		{"commit: " + strings.Repeat("a", 40), `{"ref":"refs/heads/main"}`, "push", http.StatusOK},
	} {
		t.Run(row.spec+row.body+row.event, func(t *testing.T) {
			w := newWorld(t)
			w.putToken("hook", hookToken)
			w.declare("platform", row.spec+"\ninterval: 24h\nreceiver: {type: github, secret: hook}")
			w.until("it receives", func() error {
				if got := condition(w.source("platform"), gitsource.ConditionReceiving); got == "" {
					return errors.New("it has no condition")
				}
				return nil
			})
			headers := headersOf("github", hookToken, row.body)
			headers["X-GitHub-Event"] = row.event
			got := send(w.receiver(), "POST", "/hooks/kube-system/platform", row.body, headers)
			if got.Code != row.want {
				t.Errorf("the answer is %d %s", got.Code, got.Body)
			}
		})
	}
}

// A form of GitHub has the JSON in a field.
func TestAPushInAFormIsRead(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	w.declare("platform", "branch: main\ninterval: 24h\nreceiver: {type: github, secret: hook}")
	w.until("it receives", func() error {
		if got := condition(w.source("platform"), gitsource.ConditionReceiving); got == "" {
			return errors.New("it has no condition")
		}
		return nil
	})
	for ref, want := range map[string]int{"main": http.StatusAccepted, "dev": http.StatusOK} {
		body := url.Values{"payload": {`{"ref":"refs/heads/` + ref + `"}`}}.Encode()
		headers := headersOf("github", hookToken, body)
		headers["Content-Type"] = "application/x-www-form-urlencoded"
		if got := send(w.receiver(), "POST", "/hooks/kube-system/platform", body, headers); got.Code != want {
			t.Errorf("a push of %s is answered with %d", ref, got.Code)
		}
	}
}

func TestManyRequestsCauseFewReconciliations(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "interval: 24h\nreceiver: {type: generic, secret: hook}")
	w.ready("platform", "True", "", commit)
	before, r := w.repo.Fetched(), w.receiver()
	for range 1000 {
		if got := send(r, "POST", "/hooks/kube-system/platform", "", headersOf("generic", hookToken, "")); got.Code !=
			http.StatusAccepted {
			t.Fatalf("the answer is %d", got.Code)
		}
	}
	last := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two")})
	send(r, "POST", "/hooks/kube-system/platform", "", headersOf("generic", hookToken, ""))
	w.ready("platform", "True", "", last)
	if got := w.repo.Fetched() - before; got > 3 {
		t.Errorf("1001 requests caused %d fetches", got)
	}
}

func TestHostileBodiesOfWebhooksAreBounded(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "interval: 24h\nreceiver: {type: github, secret: hook}")
	w.ready("platform", "True", "", commit)
	r := w.receiver()
	large := strings.Repeat("x", 1<<20+1)
	for _, path := range []string{"/hooks/kube-system/platform", "/hooks/kube-system/missing"} {
		if got := send(r, "POST", path, large, headersOf("github", hookToken, large)); got.Code !=
			http.StatusRequestEntityTooLarge {
			t.Errorf("a large body at %s is answered with %d", path, got.Code)
		}
		request := httptest.NewRequest("POST", path, iotest.ErrReader(errors.New("reset")))
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, request)
		if answer.Code != http.StatusBadRequest {
			t.Errorf("a body that ends early at %s is answered with %d", path, answer.Code)
		}
	}
	deep := strings.Repeat(`{"a":`, 100_000)
	if got := send(r, "POST", "/hooks/kube-system/platform", deep, headersOf("github", hookToken, deep)); got.Code !=
		http.StatusAccepted {
		t.Errorf("a body of deep JSON is answered with %d", got.Code)
	}
	// While 32 requests are served, others are refused.
	done := make(chan int, 32)
	var bodies []*io.PipeWriter
	for range 32 {
		reader, writer := io.Pipe()
		bodies = append(bodies, writer)
		go func() {
			answer := httptest.NewRecorder()
			r.ServeHTTP(answer, httptest.NewRequest("POST", "/hooks/x/y", reader))
			done <- answer.Code
		}()
	}
	for _, b := range bodies {
		if _, err := b.Write([]byte("x")); err != nil { // returns once the handler reads
			t.Fatal(err)
		}
	}
	if got := send(r, "POST", "/hooks/x/y", "", nil); got.Code != http.StatusServiceUnavailable {
		t.Errorf("one request too many is answered with %d", got.Code)
	}
	for _, b := range bodies {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if code := <-done; code != http.StatusNotFound {
			t.Errorf("a slow request is answered with %d", code)
		}
	}
}

// A client that sends bodies byte by byte must not keep the webhooks of others from being served.
func TestSlowBodiesDoNotBlockReceivers(t *testing.T) {
	w := newWorld(t)
	w.putToken("hook", hookToken)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "interval: 24h\nreceiver: {type: github, secret: hook}")
	w.ready("platform", "True", "", commit)
	r := w.receiver()
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // after the bodies are closed
	hold := func(client string) {
		reader, writer := io.Pipe()
		t.Cleanup(func() { _ = writer.Close() })
		all.Go(func() {
			request := httptest.NewRequest("POST", "/hooks/x/y", reader)
			request.RemoteAddr = client
			r.ServeHTTP(httptest.NewRecorder(), request)
		})
		if _, err := writer.Write([]byte("x")); err != nil { // returns once the handler reads
			t.Fatal(err)
		}
	}
	push := func(client string) int {
		request := httptest.NewRequest("POST", "/hooks/kube-system/platform", strings.NewReader("{}"))
		request.RemoteAddr = client
		for k, v := range headersOf("github", hookToken, "{}") {
			request.Header.Set(k, v)
		}
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, request)
		return answer.Code
	}
	for range 32 {
		hold("198.51.100.1:1")
	}
	if code := push("198.51.100.2:1"); code != http.StatusAccepted {
		t.Errorf("while another client has all seats, a push is answered with %d", code)
	}
	hold("198.51.100.1:2")
	if code := push("198.51.100.1:3"); code != http.StatusServiceUnavailable {
		t.Errorf("one request too many of a client is answered with %d", code)
	}
	w.clock.Step(time.Second)
	if code := push("198.51.100.1:4"); code != http.StatusAccepted {
		t.Errorf("after the slow requests of a proxy, a push is answered with %d", code)
	}
	for i := range 32 { // each is another client, and none has more than one
		hold(fmt.Sprintf("[2001:db8:0:%x::1]:1", i))
	}
	w.clock.Step(time.Second)
	if code := push("198.51.100.2:1"); code != http.StatusAccepted {
		t.Errorf("among many slow clients, a push is answered with %d", code)
	}
}

func TestAMissingTokenIsReportedAndDoesNotStopTheSource(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "receiver: {type: github, secret: hook}")
	s := w.ready("platform", "True", "", commit)
	if got := condition(s, gitsource.ConditionReceiving); got !=
		"False SecretNotReadable: read secret kube-system/hook: it does not exist" {
		t.Errorf("the condition is %q", got)
	}
	if got := send(w.receiver(), "POST", "/hooks/kube-system/platform", "", headersOf("github", "", "")); got.Code !=
		http.StatusNotFound {
		t.Errorf("a request is answered with %d", got.Code)
	}
	w.putToken("hook", " \n")
	w.until("the empty token is refused", func() error {
		if got := condition(w.source("platform"), gitsource.ConditionReceiving); !strings.Contains(got, "no key") {
			return errors.New(got)
		}
		return nil
	})
	w.declare("platform", "prune: true")
	w.until("the condition goes with the receiver", func() error {
		if got := condition(w.source("platform"), gitsource.ConditionReceiving); got != "" {
			return errors.New(got)
		}
		return nil
	})
}
