package fetch

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

func anybody(*http.Request) bool { return true }

// read returns the content of a file of a snapshot.
func read(t *testing.T, s gitops.Snapshot, name string) string {
	t.Helper()
	text, err := gitops.NewBudget().ReadFile(s.Files, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Proves P06.
func TestEverySelectionIsFetchedOverHTTPS(t *testing.T) {
	r := newRepository(t)
	url, ca := r.serveHTTP(anybody)
	credentials := map[string][]byte{keyCA: ca}
	first := r.commit(map[string]string{"app/a.yaml": "one", "app/deep/b.yaml": "x"})
	r.git(r.work, "tag", "v1.0.0")
	second := r.commit(map[string]string{"app/a.yaml": "two"})
	r.git(r.work, "tag", "--annotate", "--message", "release", "v1.1.0")
	third := r.commit(map[string]string{"app/a.yaml": "three"})
	r.git(r.work, "branch", "other", first)
	r.push("v1.0.0", "v1.1.0", "other")
	f := newFetcher(t)
	for _, row := range []struct {
		spec                   gitsource.Spec
		label, commit, content string
	}{
		{gitsource.Spec{}, "main", third, "three"},
		{gitsource.Spec{Branch: "other"}, "other", first, "one"},
		{gitsource.Spec{Tag: "v1.0.0"}, "v1.0.0", first, "one"},
		{gitsource.Spec{Tag: "v1.1.0"}, "v1.1.0", second, "two"},
		{gitsource.Spec{Semver: "^1.0"}, "v1.1.0", second, "two"},
		{gitsource.Spec{Commit: second}, "commit", second, "two"},
	} {
		row.spec.URL = url
		got, err := f.Fetch(t.Context(), sourceOf(row.spec), gitops.Secrets{Credentials: credentials})
		if err != nil {
			t.Errorf("%+v: %v", row.spec, err)
			continue
		}
		if want := row.label + "@sha1:" + row.commit; got.Revision != want ||
			read(t, got, "app/a.yaml") != row.content {
			t.Errorf("%+v: revision %s with %q, want %s", row.spec, got.Revision, read(t, got, "app/a.yaml"), want)
		}
		if row.content == "one" {
			if err := fstest.TestFS(noStat{got.Files}, "app/a.yaml", "app/deep/b.yaml"); err != nil {
				t.Error(err)
			}
		}
		got.Release()
	}
	for _, spec := range []gitsource.Spec{{Branch: "none"}, {Tag: "none"}, {Semver: "2.x"},
		{Commit: strings.Repeat("0", 40)}} {
		spec.URL = url
		if _, err := f.Fetch(t.Context(), sourceOf(spec), gitops.Secrets{Credentials: credentials}); err == nil {
			t.Errorf("%+v is fetched", spec)
		}
	}
}

// noStat hides methods that fstest.TestFS compares with those of open files.
type noStat struct{ fs.FS }

func TestAPackIsDownloadedOncePerCommit(t *testing.T) {
	r := newRepository(t)
	url, ca := r.serveHTTP(anybody)
	r.commit(map[string]string{"a": "one"})
	f := newFetcher(t)
	fetch := func() gitops.Snapshot {
		t.Helper()
		s, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: url}),
			gitops.Secrets{Credentials: map[string][]byte{keyCA: ca}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 3 {
		fetch().Release()
	}
	if n := r.requests.Load(); n != 1 {
		t.Errorf("the pack was requested %d times", n)
	}
	// Rewritten history is a new commit like any other.
	r.git(r.work, "checkout", "--quiet", "--orphan", "new")
	r.git(r.work, "branch", "--delete", "--force", "main")
	r.git(r.work, "branch", "--move", "main")
	r.commit(map[string]string{"a": "rewritten"})
	s := fetch()
	defer s.Release()
	if got := read(t, s, "a"); got != "rewritten" {
		t.Errorf("a is %q", got)
	}
}

func TestCredentialsAreSentAndProtected(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"a": "one"})
	url, ca := r.serveHTTP(func(q *http.Request) bool {
		user, password, _ := q.BasicAuth()
		return user == "git" && password == "token" || q.Header.Get("Authorization") == "Bearer token"
	})
	elsewhere := httptest.NewTLSServer(http.RedirectHandler(url+"/info/refs?service="+service, http.StatusFound))
	defer elsewhere.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	f := newFetcher(t)
	for name, row := range map[string]struct {
		url         string
		credentials map[string][]byte
		want        string // part of the error; "" means none
	}{
		"a token":        {url, map[string][]byte{keyPassword: []byte("token\n")}, ""},
		"a bearer token": {url, map[string][]byte{keyBearer: []byte("token")}, ""},
		"a wrong token":  {url, map[string][]byte{keyPassword: []byte("wrong")}, "refuses the credentials"},
		"none":           {url, nil, "refuses the credentials"},
		"two":            {url, map[string][]byte{keyPassword: []byte("token"), keyBearer: []byte("token")}, "both"},
		"an unknown key": {url, map[string][]byte{"token": []byte("token")}, `the key "token"`},
		"no TLS":         {plain.URL + "/a.git", map[string][]byte{keyPassword: []byte("token")}, "over https only"},
		"a redirect to another host": {strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) + "/a.git",
			map[string][]byte{keyPassword: []byte("token")}, ""},
	} {
		credentials := map[string][]byte{keyCA: ca}
		for k, v := range row.credentials {
			credentials[k] = v
		}
		if name == "a redirect to another host" {
			// The certificate of the test server is also valid for example.com and 127.0.0.1.
			row.url, row.want = elsewhere.URL+"/a.git", "must not receive the credentials"
		}
		s, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: row.url}), gitops.Secrets{Credentials: credentials})
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v, want %q", name, err, row.want)
		case err != nil && strings.Contains(err.Error(), "token\n"):
			t.Errorf("%s: the error contains the token", name)
		}
		if err == nil {
			s.Release()
		}
	}
	if _, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: url}), gitops.Secrets{}); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the CA: %v", err)
	}
}

func TestRepositoriesAreFetchedOverSSH(t *testing.T) {
	r := newRepository(t)
	commit := r.commit(map[string]string{"a": "one"})
	url, credentials := r.serveSSH()
	f := newFetcher(t)
	s, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: url}), gitops.Secrets{Credentials: credentials})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if s.Revision != "main@sha1:"+commit || read(t, s, "a") != "one" {
		t.Errorf("revision %s", s.Revision)
	}
	_, other := newRepository(t).serveSSH()
	with := func(key string, value []byte) map[string][]byte {
		changed := map[string][]byte{}
		for k, v := range credentials {
			changed[k] = v
		}
		if changed[key] = value; value == nil {
			delete(changed, key)
		}
		return changed
	}
	host, _, _ := strings.Cut(string(credentials[keyKnownHosts]), " ")
	_, otherKey, _ := strings.Cut(string(other[keyKnownHosts]), " ")
	for name, row := range map[string]struct {
		credentials map[string][]byte
		url, want   string
		isPermanent bool
	}{
		"no known_hosts":       {with(keyKnownHosts, nil), url, "the server cannot be identified", true},
		"no key":               {with(keyIdentity, nil), url, "has no identity", true},
		"another server":       {with(keyKnownHosts, other[keyKnownHosts]), url, "has no key of", true},
		"another host key":     {with(keyKnownHosts, []byte(host+" "+otherKey)), url, "another key", false},
		"another user":         {with(keyIdentity, other[keyIdentity]), url, "unable to authenticate", false},
		"a broken key":         {with(keyIdentity, []byte("x")), url, "identity", false},
		"no repository":        {credentials, url + "x", "no such repository", false},
		"a path with a quote":  {credentials, url + "'; touch " + r.dir + "/pwned; '", "no such repository", false},
		"a broken known_hosts": {with(keyKnownHosts, []byte("x\n")), url, "known_hosts", false},
	} {
		_, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: row.url}),
			gitops.Secrets{Credentials: row.credentials})
		var permanent interface{ Permanent() bool }
		if err == nil || !strings.Contains(err.Error(), row.want) || errors.As(err, &permanent) != row.isPermanent {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	if _, err := os.Stat(filepath.Join(r.dir, "pwned")); err == nil {
		t.Error("a path was run by the shell")
	}
}

func TestLinksAndPathsThatClimbOutAreRefused(t *testing.T) {
	r := newRepository(t)
	url, ca := r.serveHTTP(anybody)
	if err := os.Symlink("/etc/passwd", filepath.Join(r.work, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(r.work, "folder")); err != nil {
		t.Fatal(err)
	}
	r.git(r.work, "add", "--all")
	r.git(r.work, "commit", "--quiet", "--message", "links")
	r.push("main")
	f := newFetcher(t)
	s, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: url}),
		gitops.Secrets{Credentials: map[string][]byte{keyCA: ca}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if _, err := gitops.NewBudget().ReadFile(s.Files, "link.yaml"); err == nil ||
		!strings.Contains(err.Error(), "symbolic links are not followed") {
		t.Errorf("a link: %v", err)
	}
	if _, err := gitops.NewBudget().ReadFile(s.Files, "folder/passwd"); err == nil ||
		!strings.Contains(err.Error(), "symbolic link is not followed") {
		t.Errorf("a folder that is a link: %v", err)
	}
	for _, name := range []string{"../x", "/etc/passwd", "a/../../x"} {
		if _, err := s.Files.Open(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i, entry := range []string{"..", "a/b", "."} {
		blob := r.git(r.work, "hash-object", "-w", "link.yaml")
		raw, err := os.CreateTemp(r.dir, "tree")
		if err != nil {
			t.Fatal(err)
		}
		hash := make([]byte, 20)
		if _, err := fmt.Sscanf(blob, "%x", &hash); err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write(append([]byte("100644 "+entry+"\x00"), hash...))
		_ = raw.Close()
		tree := r.git(r.work, "hash-object", "-t", "tree", "-w", "--literally", raw.Name())
		commit := r.git(r.work, "commit-tree", "-m", "hostile", tree)
		branch := fmt.Sprintf("hostile%d", i)
		r.git(r.work, "update-ref", "refs/heads/"+branch, commit)
		r.git(r.bare, "config", "receive.fsckObjects", "false")
		r.push(branch)
		s, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: url, Branch: branch}),
			gitops.Secrets{Credentials: map[string][]byte{keyCA: ca}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		_, err = gitops.NewBudget().ReadFile(s.Files, "link.yaml")
		if err == nil || !strings.Contains(err.Error(), "which is no name of a file") {
			t.Errorf("an entry %q: %v", entry, err)
		}
	}
}

// A pack of some kilobytes whose object inflates to more than the limit is refused before go-git reads it.
func TestObjectsThatInflateTooMuchAreRefused(t *testing.T) {
	r := newRepository(t)
	url, ca := r.serveHTTP(anybody)
	r.commit(map[string]string{"a": strings.Repeat("\x00", maxObjectSize+1)})
	_, err := newFetcher(t).Fetch(t.Context(), sourceOf(gitsource.Spec{URL: url}),
		gitops.Secrets{Credentials: map[string][]byte{keyCA: ca}})
	if err == nil || !strings.Contains(err.Error(), "at most") ||
		!strings.Contains(err.Error(), "the pack is refused") {
		t.Errorf("%v", err)
	}
}

// entryOf returns an entry of a pack that states a size.
func entryOf(kind byte, size int, before, content []byte) []byte {
	var out bytes.Buffer
	b := kind<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		out.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	out.WriteByte(b)
	out.Write(before)
	w := zlib.NewWriter(&out)
	_, _ = w.Write(content)
	_ = w.Close()
	return out.Bytes()
}

func packOf(count uint32, entries ...[]byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK"), 2)
	out = binary.BigEndian.AppendUint32(out, count)
	for _, e := range entries {
		out = append(out, e...)
	}
	return append(out, make([]byte, 20)...)
}

func TestPacksAreCheckedBeforeTheyAreRead(t *testing.T) {
	blob := entryOf(3, 5, nil, []byte("hello"))
	delta := append(binary.AppendUvarint(nil, 5), binary.AppendUvarint(nil, 6)...)
	bomb := append(binary.AppendUvarint(nil, 5), binary.AppendUvarint(nil, maxObjectSize+1)...)
	for name, row := range map[string]struct {
		pack []byte
		want string
	}{
		"a blob":          {packOf(1, blob), ""},
		"a delta":         {packOf(2, blob, entryOf(typeOfsDelta, len(delta), []byte{byte(len(blob))}, delta)), ""},
		"a delta by hash": {packOf(2, blob, entryOf(typeRefDelta, len(delta), make([]byte, 20), delta)), ""},
		"a delta bomb": {packOf(2, blob, entryOf(typeOfsDelta, len(bomb), []byte{byte(len(blob))}, bomb)),
			"a delta makes"},
		"too many objects":   {packOf(maxPackObjects + 1), "objects"},
		"fewer than stated":  {packOf(2, blob), "type 0"},
		"a larger object":    {packOf(1, entryOf(3, 4, nil, []byte("hello"))), "another size"},
		"a smaller object":   {packOf(1, entryOf(3, 6, nil, []byte("hello"))), "another size"},
		"a huge stated size": {packOf(1, entryOf(3, 1<<40, nil, []byte("hello"))), "at most"},
		"no pack":            {[]byte("hello hello hello"), "not a pack"},
		"nothing":            {nil, "header"},
	} {
		err := checkPack(t.Context(), bytes.NewReader(row.pack))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := checkPack(canceled, bytes.NewReader(packOf(1, blob))); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: %v", err)
	}
}

func FuzzCheckPack(f *testing.F) {
	f.Add(packOf(1, entryOf(3, 5, nil, []byte("hello"))))
	f.Fuzz(func(t *testing.T, pack []byte) {
		_ = checkPack(t.Context(), bytes.NewReader(pack))
	})
}

func TestServersThatAreNoneAreErrors(t *testing.T) {
	endless := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
		_, _ = fmt.Fprintf(w, "001e# service=%s\n0000", service)
		for i := 1; ; i++ {
			line := fmt.Sprintf("%040d refs/heads/%s%d\n", i, strings.Repeat("x", 60_000), i)
			if i == 1 {
				line = fmt.Sprintf("%040d HEAD\x00multi_ack\n", i)
			}
			if _, err := fmt.Fprintf(w, "%04x%s", len(line)+4, line); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	page := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<html>")
	}))
	defer page.Close()
	for url, want := range map[string]string{endless.URL + "/a.git": "more than", page.URL +
		"/a.git": "smart protocol"} {
		credentials := map[string][]byte{keyCA: certificateOf(endless)}
		_, err := newFetcher(t).Fetch(t.Context(), sourceOf(gitsource.Spec{URL: url}),
			gitops.Secrets{Credentials: credentials})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// A server that never begins with the pack does not fill the memory.
func TestAnEndlessAnswerBeforeThePackIsRefused(t *testing.T) {
	commit := strings.Repeat("1", 40)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
			line := commit + " refs/heads/main\x00shallow\n"
			_, _ = fmt.Fprintf(w, "001e# service=%s\n0000%04x%s0000", service, len(line)+4, line)
			return
		}
		for i := 0; i < 1<<20; i++ {
			if _, err := fmt.Fprintf(w, "0034shallow %040x", i); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	_, err := newFetcher(t).Fetch(t.Context(), sourceOf(gitsource.Spec{URL: server.URL + "/a.git", Branch: "main"}),
		gitops.Secrets{Credentials: map[string][]byte{keyCA: certificateOf(server)}})
	if err == nil || !strings.Contains(err.Error(), "the answer before the pack has more than") {
		t.Error(err)
	}
}

// Reading a pack ends with the context.
func TestIndexingEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pack := packOf(1, entryOf(3, 1, nil, []byte("a")))
	if err := indexPack(ctx, t.TempDir(), bytes.NewReader(pack)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFoldersOfTheMachineAreRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("app/a.yaml", "one")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "app", "link.yaml")); err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t)
	fetch := func() gitops.Snapshot {
		t.Helper()
		s, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: "file://" + dir}), gitops.Secrets{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := fetch()
	if again := fetch(); again.Revision != first.Revision || read(t, first, "app/a.yaml") != "one" {
		t.Errorf("the revisions are %s and %s", first.Revision, again.Revision)
	}
	if _, err := gitops.NewBudget().ReadFile(first.Files, "app/link.yaml"); err == nil {
		t.Error("a link is followed")
	}
	write("app/a.yaml", "two")
	if changed := fetch(); changed.Revision == first.Revision {
		t.Error("a change does not change the revision")
	}
	if _, err := f.Fetch(t.Context(), sourceOf(gitsource.Spec{URL: "file://" + dir + "/none"}),
		gitops.Secrets{}); err == nil {
		t.Error("a folder that does not exist is read")
	}
}
