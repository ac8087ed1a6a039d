package fetch

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// testRegistry is a registry with one repository, team/app.
type testRegistry struct {
	t         *testing.T
	blobs     map[string][]byte
	manifests map[string][]byte // by tag and by digest
	types     map[string]string // media types of manifests
	tags      []string
	pageSize  int
	user      string // "user:password" that must be sent
	tokens    bool   // whether a token is required
	pulled    int
	requests  []string
}

func newTestRegistry(t *testing.T) *testRegistry {
	return &testRegistry{t: t, blobs: map[string][]byte{}, manifests: map[string][]byte{}, pageSize: 1000}
}

// add adds an artifact with one layer. It returns the digest.
func (r *testRegistry) add(tag, mediaType string, layer []byte) string {
	d := digestOf(layer)
	r.blobs[d] = layer
	return r.addManifest(tag, map[string]any{"schemaVersion": 2, "mediaType": mediaManifest,
		"layers": []descriptor{{MediaType: "application/x", Digest: digestOf(nil)},
			{MediaType: mediaType, Digest: d, Size: int64(len(layer))}}})
}

func (r *testRegistry) addManifest(tag string, content any) string {
	text, err := json.Marshal(content)
	if err != nil {
		r.t.Fatal(err)
	}
	r.manifests[tag], r.manifests[digestOf(text)] = text, text
	r.tags = append(r.tags, tag)
	return digestOf(text)
}

// ServeHTTP implements http.Handler.
func (r *testRegistry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.requests = append(r.requests, q.URL.Path)
	user, password, _ := q.BasicAuth()
	isUser := r.user == "" || user+":"+password == r.user
	if q.URL.Path == "/token" {
		if !isUser || q.URL.Query().Get("scope") != "repository:team/app:pull" || q.URL.Query().Get("service") != "s" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"token":"t0"}`)
		return
	}
	switch {
	case r.tokens && q.Header.Get("Authorization") != "Bearer t0":
		scheme := "http"
		if q.TLS != nil {
			scheme = "https"
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="`+scheme+"://"+q.Host+`/token",service="s",scope="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	case !r.tokens && !isUser:
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	path, ok := strings.CutPrefix(q.URL.Path, "/v2/team/app/")
	kind, name, _ := strings.Cut(path, "/")
	var text []byte
	switch kind {
	case "manifests":
		text = r.manifests[name]
	case "blobs":
		r.pulled++
		text = r.blobs[name]
	case "tags":
		from := 0
		_, _ = fmt.Sscan(q.URL.Query().Get("from"), &from) // 0 otherwise
		to := min(from+r.pageSize, len(r.tags))
		if to < len(r.tags) {
			w.Header().Set("Link", fmt.Sprintf(`</v2/team/app/tags/list?from=%d>; rel="next"`, to))
		}
		text, _ = json.Marshal(map[string]any{"tags": r.tags[from:to]}) // never fails
	}
	if !ok || text == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write(text)
}

// serve serves the registry without TLS. It returns the URL of the repository.
func (r *testRegistry) serve() string {
	server := httptest.NewServer(r)
	r.t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "oci://", 1) + "/team/app"
}

// fetchSpec fetches a source.
func fetchSpec(t *testing.T, f *Fetcher, spec gitsource.Spec, credentials map[string][]byte) (gitops.Snapshot, error) {
	t.Helper()
	s, err := f.Fetch(t.Context(), sourceOf(spec), gitops.Secrets{Credentials: credentials})
	if err == nil {
		t.Cleanup(s.Release)
	}
	return s, err
}

func wantError(t *testing.T, name string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

// Proves P06.
func TestArtifactsAreFetchedFromRegistries(t *testing.T) {
	r := newTestRegistry(t)
	url := r.serve()
	one := r.add("v1.0.0", mediaFluxLayer, pack(t, archived{name: "app/a.yaml", text: "one"}))
	two := r.add("1.1.0_build.5", mediaLayer, pack(t, archived{name: "./app/a.yaml", text: "two"}))
	latest := r.add("latest", mediaHelmLayer, pack(t, archived{name: "web/app/a.yaml", text: "chart"}))
	r.pageSize = 1
	f := newFetcher(t)
	for _, row := range []struct {
		spec                   gitsource.Spec
		label, digest, content string
	}{
		{gitsource.Spec{}, "latest", latest, "chart"},
		{gitsource.Spec{Tag: "v1.0.0"}, "v1.0.0", one, "one"},
		{gitsource.Spec{Semver: "1.x"}, "1.1.0+build.5", two, "two"},
		{gitsource.Spec{Semver: "1.0.x"}, "v1.0.0", one, "one"},
		{gitsource.Spec{Digest: one}, "digest", one, "one"},
	} {
		row.spec.URL = url
		s, err := fetchSpec(t, f, row.spec, nil)
		if err != nil {
			t.Errorf("%+v: %v", row.spec, err)
			continue
		}
		if want := row.label + "@" + row.digest; s.Revision != want || read(t, s, "app/a.yaml") != row.content {
			t.Errorf("%+v: revision %s, want %s", row.spec, s.Revision, want)
		}
	}
	if r.pulled != 3 {
		t.Errorf("layers were pulled %d times", r.pulled)
	}
	for want, spec := range map[string]gitsource.Spec{"no such artifact": {Tag: "none"}, "satisfies": {Semver: "2.x"}} {
		spec.URL = url
		_, err := fetchSpec(t, f, spec, nil)
		wantError(t, want, err, want)
	}
}

func TestCredentialsForRegistries(t *testing.T) {
	layer := pack(t, archived{name: "a", text: "x"})
	password := map[string][]byte{keyUsername: []byte("u"), keyPassword: []byte("p\n")}
	config := func(text string) map[string][]byte { return map[string][]byte{keyDockerConfig: []byte(text)} }
	for _, tokens := range []bool{false, true} {
		r := newTestRegistry(t)
		r.add("latest", mediaFluxLayer, layer)
		r.user, r.tokens = "u:p", tokens
		url := r.serve()
		host := strings.Split(url, "/")[2]
		for name, row := range map[string]struct {
			credentials map[string][]byte
			want        string
		}{
			"a password":   {password, ""},
			"a file":       {config(`{"auths":{"` + host + `":{"auth":"dTpw"}}}`), ""},
			"another file": {config(`{"auths":{"https://` + host + `/v1/":{"username":"u","password":"p"}}}`), ""},
			"none":         {nil, "credentials"},
			"a wrong one": {map[string][]byte{keyUsername: []byte("u"), keyPassword: []byte("q")},
				"refuses the credentials"},
			"another host":    {config(`{"auths":{"ghcr.io":{"auth":"dTpw"}}}`), "no credentials for"},
			"a damaged file":  {config(`{"auths":`), "is not JSON"},
			"a damaged entry": {config(`{"auths":{"` + host + `":{"auth":"!"}}}`), "damaged credentials"},
			"a token":         {config(`{"auths":{"` + host + `":{"identitytoken":"x"}}}`), "not supported"},
			"a wrong bearer":  {map[string][]byte{keyBearer: []byte("x")}, "refuses the token"},
			"a key of ssh":    {map[string][]byte{keyIdentity: []byte("x")}, "which is none of"},
			"both":            {map[string][]byte{keyPassword: []byte("x"), keyDockerConfig: []byte("{}")}, "both"},
		} {
			if name == "a wrong bearer" && !tokens {
				continue
			}
			_, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: url}, row.credentials)
			if row.want == "" && err != nil {
				t.Errorf("tokens %v, %s: %v", tokens, name, err)
			}
			if row.want != "" {
				wantError(t, name, err, row.want)
			}
		}
	}
	// With a CA, a registry at a loopback address is spoken to with TLS.
	r := newTestRegistry(t)
	r.add("latest", mediaFluxLayer, layer)
	server := httptest.NewTLSServer(r)
	defer server.Close()
	url := strings.Replace(server.URL, "https://", "oci://", 1) + "/team/app"
	if _, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: url},
		map[string][]byte{keyCA: certificateOf(server)}); err != nil {
		t.Error(err)
	}
	if _, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: url}, nil); err == nil {
		t.Error("a registry with TLS answers without it")
	}
	// Elsewhere nothing is sent without TLS.
	registry, err := newRegistry(dialer{}, &gitsource.Spec{URL: "oci://registry.example/team/app"}, nil)
	if err != nil || registry.base("", "").Scheme != "https" {
		t.Errorf("%+v, %v", registry, err)
	}
	_, err = registry.token(t.Context(), "http://127.0.0.1/token", "")
	wantError(t, "a server for tokens without TLS", err, `begins with "http"`)
}

// A redirect to another server, which registries use for blobs, does not send the credentials there.
func TestRedirectsOfRegistriesLoseTheCredentials(t *testing.T) {
	layer := pack(t, archived{name: "a", text: "x"})
	var sent []string
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		sent = append(sent, q.Header.Get("Authorization"))
		_, _ = w.Write(layer)
	}))
	defer store.Close()
	r := newTestRegistry(t)
	r.add("latest", mediaFluxLayer, layer)
	r.user = "u:p"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.Contains(q.URL.Path, "/blobs/") {
			http.Redirect(w, q, store.URL, http.StatusTemporaryRedirect)
			return
		}
		r.ServeHTTP(w, q)
	}))
	defer server.Close()
	_, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: strings.Replace(server.URL, "http://", "oci://", 1) +
		"/team/app"}, map[string][]byte{keyUsername: []byte("u"), keyPassword: []byte("p")})
	if err != nil || len(sent) != 1 || sent[0] != "" {
		t.Errorf("%v; the other server got %q", err, sent)
	}
}

func TestHostileArtifactsAreRefused(t *testing.T) {
	layer := pack(t, archived{name: "a", text: "x"})
	layers := func(list ...descriptor) map[string]any {
		return map[string]any{"schemaVersion": 2, "layers": list}
	}
	good := descriptor{mediaFluxLayer, digestOf(layer), int64(len(layer))}
	for name, row := range map[string]struct {
		manifest any
		want     string
	}{
		"another digest": {layers(descriptor{mediaFluxLayer, digestOf([]byte("y")), good.Size}),
			"the manifest says"},
		"another size":       {layers(descriptor{mediaFluxLayer, good.Digest, 1}), "the manifest says"},
		"a huge size":        {layers(descriptor{mediaFluxLayer, good.Digest, 1 << 40}), "at most"},
		"a negative size":    {layers(descriptor{mediaFluxLayer, good.Digest, -1}), "at most"},
		"a path as a digest": {layers(descriptor{mediaFluxLayer, "sha256:../../x", 1}), "only SHA-256"},
		"SHA-1": {layers(descriptor{mediaFluxLayer, "sha1:" + strings.Repeat("0", 40), 1}),
			"only SHA-256"},
		"another type":     {layers(descriptor{"application/zip", good.Digest, good.Size}), "media types"},
		"no layer":         {layers(), "media types"},
		"many layers":      {layers(make([]descriptor, maxLayers+1)...), "layers"},
		"an index":         {map[string]any{"schemaVersion": 2, "mediaType": mediaIndex}, "index"},
		"a list":           {map[string]any{"schemaVersion": 2, "manifests": []any{map[string]any{}}}, "index"},
		"an old manifest":  {map[string]any{"schemaVersion": 1}, "not a manifest"},
		"a large manifest": {map[string]any{"x": strings.Repeat("x", maxManifest)}, "more than"},
	} {
		r := newTestRegistry(t)
		url := r.serve()
		r.addManifest("latest", row.manifest)
		r.blobs[digestOf([]byte("y"))], r.blobs[good.Digest] = layer, layer
		_, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: url}, nil)
		wantError(t, name, err, row.want)
	}
	r := newTestRegistry(t)
	url := r.serve()
	r.add("latest", mediaFluxLayer, pack(t, archived{name: "a", kind: tar.TypeSymlink, link: "/etc/passwd"}))
	_, err := fetchSpec(t, newFetcher(t), gitsource.Spec{URL: url}, nil)
	wantError(t, "a link", err, "is a link")
	other := r.add("other", mediaFluxLayer, layer)
	r.manifests[digestOf([]byte("z"))] = r.manifests[other]
	_, err = fetchSpec(t, newFetcher(t), gitsource.Spec{URL: url, Digest: digestOf([]byte("z"))}, nil)
	wantError(t, "another manifest", err, "another one")
	r.tags = make([]string, maxTagPages+1)
	r.pageSize = 1
	_, err = fetchSpec(t, newFetcher(t), gitsource.Spec{URL: url, Semver: "1.x"}, nil)
	wantError(t, "many pages", err, "pages")
	for target, want := range map[string]string{"<http://elsewhere.example/>; " +
		"rel=next": "elsewhere", "x": "elsewhere"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", target)
			fmt.Fprint(w, `{"tags":[]}`)
		}))
		_, err = fetchSpec(t, newFetcher(t), gitsource.Spec{Semver: "1.x",
			URL: strings.Replace(server.URL, "http://", "oci://", 1) + "/team/app"}, nil)
		server.Close()
		wantError(t, "a link "+target, err, want)
	}
}
