package fetch

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// A source outside of kube-system reaches nothing that serves only the machine itself: not by its URL, by its proxy, by
// a redirect, or by a server for tokens.
func TestSourcesOfTenantsReachNothingOnTheMachine(t *testing.T) {
	reached := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(address, ":")
	r := newRepository(t)
	r.commit(map[string]string{"a": "x"})
	sshURL, sshKeys := r.serveSSH()
	for name, row := range map[string]struct {
		spec        gitsource.Spec
		credentials map[string][]byte
	}{
		"git":            {spec: gitsource.Spec{URL: server.URL + "/a.git"}},
		"a name":         {spec: gitsource.Spec{URL: "http://localhost:" + port + "/a.git"}},
		"IPv4 in IPv6":   {spec: gitsource.Spec{URL: "http://[::ffff:127.0.0.1]:" + port + "/a.git"}},
		"no address":     {spec: gitsource.Spec{URL: "http://0.0.0.0:" + port + "/a.git"}},
		"the metadata":   {spec: gitsource.Spec{URL: "http://169.254.169.254/a.git"}},
		"a zone":         {spec: gitsource.Spec{URL: "http://[fe80::1%25lo]:" + port + "/a.git"}},
		"a registry":     {spec: gitsource.Spec{URL: "oci://" + address + "/team/app"}},
		"a chart":        {spec: gitsource.Spec{URL: server.URL + "/charts", Helm: &gitsource.Helm{Chart: "web"}}},
		"a proxy":        {spec: gitsource.Spec{URL: "http://git.example/a.git", Proxy: server.URL}},
		"a SOCKS proxy":  {spec: gitsource.Spec{URL: "http://git.example/a.git", Proxy: "socks5://" + address}},
		"ssh":            {gitsource.Spec{URL: sshURL}, sshKeys},
		"ssh by a proxy": {gitsource.Spec{URL: sshURL, Proxy: server.URL}, sshKeys},
	} {
		s := sourceOf(row.spec)
		s.Namespace = "team"
		_, err := newFetcher(t).Fetch(t.Context(), s, gitops.Secrets{Credentials: row.credentials})
		wantError(t, name, err, "only sources in kube-system")
	}
	if reached > 0 {
		t.Errorf("the server was reached %d times", reached)
	}
	// The proxy of the system block may be on the machine.
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:3128")
	if !isSystemProxy("127.0.0.1:3128") || isSystemProxy("127.0.0.1:22") {
		t.Error("the proxy of the system is not recognized")
	}
}

// A registry can redirect to another server, which must not ask for the credentials.
func TestOnlyTheRegistryItselfAsksForCredentials(t *testing.T) {
	layer := pack(t, archived{name: "a", text: "x"})
	for _, scheme := range []string{"Basic", "Bearer"} {
		var sent []string
		var other *httptest.Server
		other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			sent = append(sent, q.Header.Get("Authorization"))
			w.Header().Set("WWW-Authenticate", scheme+` realm="`+other.URL+`/token",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		defer other.Close()
		r := newTestRegistry(t)
		r.add("latest", mediaFluxLayer, layer)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if strings.Contains(q.URL.Path, "/blobs/") {
				http.Redirect(w, q, other.URL+"/blob", http.StatusTemporaryRedirect)
				return
			}
			r.ServeHTTP(w, q)
		}))
		defer server.Close()
		_, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: strings.Replace(server.URL, "http://", "oci://", 1) +
			"/team/app"}, map[string][]byte{keyUsername: []byte("u"), keyPassword: []byte("p")})
		wantError(t, scheme, err, "redirects to "+strings.TrimPrefix(other.URL, "http://"))
		if joined := strings.Join(sent, ""); joined != "" {
			t.Errorf("%s: the other server got %q", scheme, sent)
		}
	}
}

// A token for anonymous access can expire between two requests.
func TestATokenThatExpiresIsRequestedAgain(t *testing.T) {
	r := newTestRegistry(t)
	r.add("latest", mediaFluxLayer, pack(t, archived{name: "a", text: "x"}))
	tokens := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch token := q.Header.Get("Authorization"); {
		case q.URL.Path == "/token":
			tokens++
			_, _ = io.WriteString(w, `{"token":"t`+strings.Repeat("0", tokens)+`"}`)
		case token == "Bearer t0" && strings.Contains(q.URL.Path, "/blobs/"), token == "":
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+q.Host+`/token",service="s"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			r.ServeHTTP(w, q)
		}
	}))
	defer server.Close()
	_, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: strings.Replace(server.URL, "http://", "oci://", 1) +
		"/team/app"}, nil)
	if err != nil || tokens != 2 {
		t.Errorf("%v after %d tokens", err, tokens)
	}
}

// A file of Docker can have several entries for one registry. The most specific one applies.
func TestCredentialsForAPathOfARegistry(t *testing.T) {
	text := []byte(`{"auths":{"https://registry.example/v1/":{"username":"all","password":"p"},
		"registry.example/team":{"username":"team","password":"p"},
		"registry.example/team/app":{"username":"app","password":"p"},
		"registry.example/te":{"username":"te","password":"p"},
		"other.example":{"username":"other","password":"p"}}}`)
	for range 20 {
		for repository, want := range map[string]string{"team/app": "app", "team/api": "team", "team/app/sub": "app",
			"tea": "all", "x": "all"} {
			username, _, err := dockerCredentials(text, "registry.example", repository)
			if err != nil || username != want {
				t.Fatalf("%s: %q, %v, want %q", repository, username, err, want)
			}
		}
	}
}

// Another source's proxy can send anything for a URL without TLS. It must not get into the cache of this source.
func TestTheCacheTellsProxiesApart(t *testing.T) {
	direct := gitsource.Spec{URL: "http://git.example/a.git"}
	through := gitsource.Spec{URL: "http://git.example/a.git", Proxy: "http://proxy.example"}
	if cacheKey(&direct, nil, "x") == cacheKey(&through, nil, "x") {
		t.Error("a source with a proxy shares the cache of one without")
	}
}

// packSession serves a pack.
type packSession struct{ pack []byte }

func (p packSession) advertise(context.Context) (*packp.AdvRefs, error) {
	return packp.NewAdvRefs(), nil
}

func (p packSession) upload(_ context.Context, request *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	return packp.NewUploadPackResponseWithPackfile(request, io.NopCloser(bytes.NewReader(p.pack))), nil
}

func (p packSession) close() {}

// A server that has lost an object can send a pack without it. The pack must not be cached, since nothing would request
// the commit again.
func TestAnIncompletePackIsAnError(t *testing.T) {
	r := newRepository(t)
	commit := r.commit(map[string]string{"deep/a.yaml": "x", "b.yaml": "y"})
	root, folder := r.git(r.work, "rev-parse", "HEAD^{tree}"), r.git(r.work, "rev-parse", "HEAD:deep")
	a, b := r.git(r.work, "rev-parse", "HEAD:deep/a.yaml"), r.git(r.work, "rev-parse", "HEAD:b.yaml")
	for name, row := range map[string]struct {
		objects []string
		missing string
	}{
		"complete":     {[]string{commit, root, folder, a, b}, ""},
		"no file":      {[]string{commit, root, folder, a}, b},
		"no deep file": {[]string{commit, root, folder, b}, a},
		"no folder":    {[]string{commit, root, a, b}, folder},
		"no root":      {[]string{commit, folder, a, b}, root},
		"no commit":    {[]string{root, folder, a, b}, commit},
	} {
		err := download(t.Context(), packSession{r.packOf(row.objects)}, packp.NewAdvRefs(), plumbing.NewHash(commit),
			t.TempDir())
		if row.missing == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantError(t, name, err, "lacks "+row.missing)
	}
}
