package fetch

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"clusterctl/daemons/config/gitsource"
)

// helmServer is a Helm repository.
type helmServer struct {
	t        *testing.T
	files    map[string][]byte
	user     string // "user:password" that must be sent
	requests map[string]int
}

func newHelmServer(t *testing.T) *helmServer {
	return &helmServer{t: t, files: map[string][]byte{}, requests: map[string]int{}}
}

// ServeHTTP implements http.Handler.
func (h *helmServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	h.requests[q.URL.Path]++
	user, password, _ := q.BasicAuth()
	if h.user != "" && user+":"+password != h.user {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	text, ok := h.files[strings.TrimPrefix(q.URL.Path, "/charts/")]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write(text)
}

// serve serves the repository. It returns a source of a chart in it.
func (h *helmServer) serve(chart, version string) (gitsource.Spec, map[string][]byte) {
	server := httptest.NewTLSServer(h)
	h.t.Cleanup(server.Close)
	return gitsource.Spec{URL: server.URL + "/charts", Helm: &gitsource.Helm{Chart: chart, Version: version}},
		map[string][]byte{keyCA: certificateOf(server)}
}

// webChart returns an archive of a chart.
func webChart(t *testing.T, version string) []byte {
	t.Helper()
	return pack(t, archived{name: "web/Chart.yaml", text: "apiVersion: v2\nname: web\nversion: " + version + "\n"},
		archived{name: "web/templates/a.yaml", text: "version: " + version + "\n"})
}

// Proves P06.
func TestChartsAreFetchedFromRepositories(t *testing.T) {
	h := newHelmServer(t)
	for _, version := range []string{"1.0.0", "1.1.0", "2.0.0-rc.1"} {
		h.files["web-"+version+".tgz"] = webChart(t, version)
	}
	digest := func(version string) string { return digestOf(h.files["web-"+version+".tgz"]) }
	h.files["index.yaml"] = []byte(`apiVersion: v1
entries:
  alpine:
  - version: 9.0.0
    description: |
      web:
      - version: 8.0.0
    urls: [other.tgz]
  "web":
    # a comment
    - apiVersion: v2
      name: web
      version: 1.0.0
      urls:
      - web-1.0.0.tgz
    - version: 1.1.0
      digest: ` + strings.TrimPrefix(digest("1.1.0"), digestPrefix) + `
      urls: ["web-1.1.0.tgz", "https://mirror.example/web-1.1.0.tgz"]

    - {version: 2.0.0-rc.1, urls: [web-2.0.0-rc.1.tgz], digest: "` + digest("2.0.0-rc.1") + `"}
  zebra:
  - version: 7.0.0
    urls: [other.tgz]
generated: "2026-01-31T12:00:00Z"
`)
	for _, row := range []struct{ constraint, want string }{{"", "1.1.0"}, {"1.0.x", "1.0.0"},
		{">=2.0.0-rc.1", "2.0.0-rc.1"}} {
		spec, credentials := h.serve("web", row.constraint)
		f := newFetcher(t)
		for range 2 {
			s, err := fetchSpec(t, f, spec, credentials)
			if err != nil {
				t.Errorf("%q: %v", row.constraint, err)
				continue
			}
			if want := "web-" + row.want + "@" + digest(row.want); s.Revision != want ||
				read(t, s, "templates/a.yaml") != "version: "+row.want+"\n" {
				t.Errorf("%q: revision %s, want %s", row.constraint, s.Revision, want)
			}
		}
	}
	if n := h.requests["/charts/web-1.1.0.tgz"]; n != 1 {
		t.Errorf("an archive with a digest was downloaded %d times", n)
	}
	for name, row := range map[string]struct{ chart, version, want string }{
		"another version": {"web", "3.x", "none of the 3 versions"},
		"another chart":   {"none", "", `no chart "none"`},
		"a field":         {"generated", "", "no chart"},
	} {
		spec, credentials := h.serve(row.chart, row.version)
		_, err := fetchSpec(t, newFetcher(t), spec, credentials)
		wantError(t, name, err, row.want)
	}
	h.files["index.yaml"] = []byte(`{"apiVersion":"v1","entries":{"a":[{"version":"9.0.0"}],
"web":[{"version":"1.0.0","x":[{}],
"urls":["web-1.0.0.tgz"]},{"version":"0.1.0","urls":["x"]}]},"generated":"x"}`)
	spec, credentials := h.serve("web", "")
	if s, err := fetchSpec(t, newFetcher(t), spec, credentials); err != nil ||
		s.Revision != "web-1.0.0@"+digest("1.0.0") {
		t.Errorf("an index in JSON: %s, %v", s.Revision, err)
	}
}

func TestOnlyTheHelmRepositoryGetsTheCredentials(t *testing.T) {
	h := newHelmServer(t)
	h.user = "u:p"
	var sent []string
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		sent = append(sent, q.Header.Get("Authorization"))
		_, _ = w.Write(webChart(t, "1.0.0"))
	}))
	defer other.Close()
	h.files["index.yaml"] = []byte("entries:\n  web:\n  - version: 1.0.0\n    urls: [" + other.URL + "/web.tgz]\n")
	spec, credentials := h.serve("web", "")
	_, err := fetchSpec(t, newFetcher(t), spec, credentials)
	wantError(t, "without credentials", err, "refuses the credentials")
	credentials[keyUsername], credentials[keyPassword] = []byte("u"), []byte("p")
	if _, err := fetchSpec(t, newFetcher(t), spec, credentials); err != nil || len(sent) != 1 || sent[0] != "" {
		t.Errorf("%v; the other server got %q", err, sent)
	}
}

func TestHostileHelmRepositoriesAreRefused(t *testing.T) {
	chart := webChart(t, "1.0.0")
	index := func(entry string) string { return "entries:\n  web:\n  - version: 1.0.0\n    " + entry + "\n" }
	for name, row := range map[string]struct{ index, want string }{
		"no index":               {"", "no chart"},
		"no entries":             {"entries: {}\n", "no chart"},
		"flow style":             {"entries: {web: [{version: 1.0.0}]}\n", "block style"},
		"a chart in flow style":  {"entries:\n  web: [{version: 1.0.0}]\n", "block style"},
		"no list":                {"entries:\n  web:\n    version: 1.0.0\n", "not a list"},
		"a chart twice":          {index("urls: [web.tgz]") + "  web:\n  - version: 2.0.0\n", "twice"},
		"no URL":                 {index("urls: []"), "no URL"},
		"http":                   {index("urls: [\"http://mirror.example/web.tgz\"]"), `begins with "http"`},
		"a file":                 {index("urls: [\"file:///etc/passwd\"]"), "usable URL"},
		"a registry":             {index("urls: [\"oci://registry.example/web\"]"), `begins with "oci"`},
		"credentials":            {index("urls: [\"https://u:p@mirror.example/web.tgz\"]"), "usable URL"},
		"another digest":         {index("urls: [web.tgz]\n    digest: " + strings.Repeat("0", 64)), "the index says"},
		"a missing archive":      {index("urls: [none.tgz]"), "404"},
		"an archive that climbs": {index("urls: [climbs.tgz]"), "no path below"},
		"a damaged entry":        {index("urls: {a: b}"), "damaged"},
		"an alias":               {index("urls: *x"), "damaged"},
		"a long entry":           {index("d: |\n" + strings.Repeat("     x\n", maxIndexEntry/6)), "more than"},
		"a long line":            {index("d: " + strings.Repeat("x", maxIndexLine)), "line of more than"},
		"broken JSON":            {`{"entries":{"web":[{"version":1}]}}`, "damaged"},
		"half of JSON":           {`{"entries":{"web":[`, "damaged"},
		"JSON without a list":    {`{"entries":{"web":{}}}`, "not a list"},
	} {
		h := newHelmServer(t)
		h.files["index.yaml"], h.files["web.tgz"] = []byte(row.index), chart
		h.files["climbs.tgz"] = pack(t, archived{name: "web/../../Chart.yaml", text: "x"})
		spec, credentials := h.serve("web", "")
		_, err := fetchSpec(t, newFetcher(t), spec, credentials)
		wantError(t, name, err, row.want)
	}
}

// endless repeats a text with a number.
type endless struct {
	format string
	n, max int
	buffer bytes.Buffer
}

func (e *endless) Read(p []byte) (int, error) {
	for e.buffer.Len() < len(p) && e.n < e.max {
		fmt.Fprintf(&e.buffer, e.format, e.n)
		e.n++
	}
	return e.buffer.Read(p)
}

// The memory of an index does not grow with its entries.
func TestAnIndexWithAMillionEntriesIsBounded(t *testing.T) {
	constraint, err := gitsource.ParseConstraint("*")
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := &chartSelector{chart: "c999999", constraint: constraint}
	err = readIndex(io.MultiReader(strings.NewReader("entries:\n"),
		&endless{format: "  c%d:\n  - version: 1.0.0\n    urls: [x]\n", max: 1_000_000}), s)
	runtime.ReadMemStats(&after)
	if err != nil || s.best.Version != "1.0.0" {
		t.Errorf("%+v, %v", s.best, err)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	for name, row := range map[string]struct{ start, format, want string }{
		"versions":         {"entries:\n  web:\n", "  - version: 1.0.%d\n", "versions"},
		"bytes":            {"entries:\n", "  c%0200000d:\n", "more than"},
		"versions in JSON": {`{"entries":{"web":[{}`, `,{"version":"1.0.%d"}`, "versions"},
		"bytes of JSON":    {`{"entries":{"a":[{}`, `,{"version":"%0200000d"}`, "bytes of JSON"},
	} {
		s := &chartSelector{chart: "web", constraint: constraint}
		err := readIndex(io.MultiReader(strings.NewReader(row.start), &endless{format: row.format, max: 1_000_000}), s)
		wantError(t, name, err, row.want)
	}
}

func FuzzIndex(f *testing.F) {
	constraint, err := gitsource.ParseConstraint("*")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("entries:\n  web:\n  - version: 1.0.0\n    urls: [x]\n")
	f.Add(`{"entries":{"web":[{"version":"1.0.0"}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := &chartSelector{chart: "web", constraint: constraint}
		if err := readIndex(strings.NewReader(text), s); err == nil && s.best.Version != "" && s.seen == 0 {
			t.Error("a version without an entry is selected")
		}
	})
}
