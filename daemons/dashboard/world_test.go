package dashboard_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/apiserver/review"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/dashboard"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
)

// The tokens of the API server's users.
const (
	adminToken  = "token-of-the-admin"
	readerToken = "token-of-the-reader"
)

// users authenticates by token. The requests that it saw are recorded.
type users struct {
	mu      sync.Mutex
	headers []http.Header
}

func (u *users) Authenticate(r *http.Request) (api.User, bool, error) {
	u.mu.Lock()
	u.headers = append(u.headers, r.Header.Clone())
	u.mu.Unlock()
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok:
		return api.User{}, false, nil
	case token == adminToken:
		return api.User{Name: "admin", Groups: []string{api.GroupMasters, api.GroupAuthenticated}}, true, nil
	case token == readerToken:
		return api.User{Name: "reader", Groups: []string{api.GroupAuthenticated}}, true, nil
	}
	return api.User{}, false, errors.New("the token is unknown")
}

// last returns the headers of the last request that the API server got.
func (u *users) last() http.Header {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.headers[len(u.headers)-1]
}

// rights lets the reader read everything but Secrets and Nodes.
type rights struct{}

func (rights) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	isReview := r.Group == "authorization.k8s.io" || r.Group == "authentication.k8s.io"
	isRead := r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
	isHidden := r.GroupVersionResource.Resource == "secrets" || r.GroupVersionResource.Resource == "nodes" ||
		!r.Resource && r.Path == "/metrics"
	if u.InGroup(api.GroupMasters) || isReview || isRead && !isHidden {
		return api.Allow, "", nil
	}
	return api.NoOpinion, "", nil
}

// world is an API server over a store in memory, and a dashboard in front of it.
type world struct {
	t     *testing.T
	api   *rest.Config // without credentials
	users *users
	board *dashboard.Dashboard
	url   string
	log   *syncBuffer

	mu  sync.Mutex
	now time.Time
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func startAPI(t *testing.T) (*rest.Config, *users) {
	t.Helper()
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	s := memory.New()
	t.Cleanup(s.Close)
	storage := apiserver.OpenStorage(s, "", kinds.All(), env.Log)
	who := &users{}
	access := apiserver.Access{Authenticators: []api.Authenticator{who}, Authorizers: []api.Authorizer{rights{}},
		Reviews: map[schema.GroupResource]write.Review{}}
	for resource, handle := range review.All(rights{}, nil, nil) {
		access.Reviews[resource] = handle
	}
	server, err := apiserver.New(apiserver.Options{Storage: storage, Env: env, Access: access,
		Addresses: apiserver.Addresses{ServiceClusterIPRange: []string{"10.96.0.0/16"}},
		Admission: apiserver.Admission{External: &write.External{}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	web := httptest.NewUnstartedServer(server)
	web.EnableHTTP2 = true
	ca, pair := issueServer(t)
	web.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	web.StartTLS()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
	})
	until(t, "the API server is ready", func() bool { return env.Health.Err(true) == nil })
	return &rest.Config{Host: web.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, who
}

// issueServer returns a new authority and the certificate of an API server.
func issueServer(t *testing.T) (ca []byte, pair tls.Certificate) {
	t.Helper()
	authority, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := certs.Issue(authority, certs.DaemonServer("kubernetes", nil), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(issued.Cert, issued.Key); err != nil {
		t.Fatal(err)
	}
	return authority.Cert, pair
}

func newWorld(t *testing.T, signIn dashboard.SignIn) *world {
	t.Helper()
	w := &world{t: t, log: &syncBuffer{}, now: time.Now()}
	w.api, w.users = startAPI(t)
	config := rest.CopyConfig(w.api)
	if signIn == dashboard.SignInByCommand {
		config.BearerToken = adminToken
	}
	w.serve(config, signIn)
	return w
}

// serve starts a dashboard on a loopback port.
func (w *world) serve(config *rest.Config, signIn dashboard.SignIn) {
	var host string
	board := dashboard.New(dashboard.Config{API: config, SignIn: signIn, Cluster: "test", CookieSuffix: "-1",
		AllowHost: func(h string) bool { return h == host }, Now: w.clock,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	web := httptest.NewServer(board)
	w.board = board
	host, w.url = strings.TrimPrefix(web.URL, "http://"), web.URL
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); board.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		<-done
		web.Close()
	})
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// browser is a client with cookies, which does not follow redirects.
type browser struct {
	w      *world
	client *http.Client
	csrf   string
}

func (w *world) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return &browser{w: w, client: &http.Client{Jar: jar, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// answer is an answer that was read.
type answer struct {
	*http.Response
	text string
}

// do sends a request. Each change applies to it before.
func (b *browser) do(method, path, body string, changes ...func(*http.Request)) answer {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(b.w.t.Context(), method, b.w.url+path, strings.NewReader(body))
	if err != nil {
		b.w.t.Fatal(err)
	}
	if method != http.MethodGet {
		r.Header.Set("Origin", b.w.url)
		r.Header.Set("X-Dashboard-Token", b.csrf)
	}
	for _, change := range changes {
		change(r)
	}
	got, err := b.client.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return answer{got, string(text)}
}

// get decodes the answer to a GET request.
func (b *browser) get(path string, into any) {
	b.w.t.Helper()
	got := b.do(http.MethodGet, path, "")
	if got.StatusCode != http.StatusOK {
		b.w.t.Fatalf("GET %s: %s %s", path, got.Status, got.text)
	}
	if err := json.Unmarshal([]byte(got.text), into); err != nil {
		b.w.t.Fatalf("GET %s: %v: %s", path, err, got.text)
	}
}

// readSession reads the token for requests that change something.
func (b *browser) readSession() map[string]any {
	b.w.t.Helper()
	var session map[string]any
	b.get("/api/session", &session)
	b.csrf, _ = session["csrf"].(string)
	return session
}

// signInByCode returns a browser that is signed in as the command's user.
func (w *world) signInByCode() *browser {
	w.t.Helper()
	b := w.browser()
	if got := b.do(http.MethodGet, "/signin?code="+w.board.NewCode(), ""); got.StatusCode != http.StatusOK {
		w.t.Fatalf("sign in: %s", got.Status)
	}
	b.readSession()
	return b
}

// signInByToken returns a browser that is signed in as the user of a token.
func (w *world) signInByToken(token string) *browser {
	w.t.Helper()
	b := w.browser()
	if got := b.sendToken(token); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != "/" {
		w.t.Fatalf("sign in: %s %s", got.Status, got.text)
	}
	b.readSession()
	return b
}

func (b *browser) sendToken(token string, changes ...func(*http.Request)) answer {
	b.w.t.Helper()
	form := func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }
	return b.do(http.MethodPost, "/signin", url.Values{"token": {token}}.Encode(),
		append([]func(*http.Request){form}, changes...)...)
}

// cookie returns the session's cookie, or nil.
func (b *browser) cookie() *http.Cookie {
	at, err := url.Parse(b.w.url)
	if err != nil {
		b.w.t.Fatal(err)
	}
	for _, c := range b.client.Jar.Cookies(at) {
		return c
	}
	return nil
}

// until waits for a condition.
func until(t *testing.T, what string, matches func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); !matches(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}
