// Package fetch gets the files of GitSources: from Git repositories over https and ssh, from registries of OCI
// artifacts, from Helm repositories, and from folders of the machine. Everything that a server sends is bounded, and
// symbolic links are not followed. It speaks the protocol of git-upload-pack itself, and reads the pack with go-git.
// Nothing is checked out: files are read from the repository's objects.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Bounds of what a server may send.
const (
	maxRefs      = 100_000   // references
	maxRefBytes  = 32 << 20  // bytes of the list of references
	maxPackBytes = 512 << 20 // bytes of a pack
	maxErrorBody = 1 << 10   // bytes of a server's error message that are shown
	// maxResponseHeader is the number of bytes before a pack, which go-git keeps in memory.
	maxResponseHeader = 1 << 20
)

// Keys of a Secret with credentials.
const (
	keyUsername   = "username"
	keyPassword   = "password" // or a token
	keyBearer     = "bearerToken"
	keyCA         = "ca.crt"
	keyClientCert = "tls.crt"
	keyClientKey  = "tls.key"
	keyIdentity   = "identity" // private key of ssh
	keyPassphrase = "passphrase"
	keyKnownHosts = "known_hosts"
)

// registryKeys are all keys that are read for a registry.
var registryKeys = []string{keyUsername, keyPassword, keyBearer, keyCA, keyClientCert, keyClientKey, keyDockerConfig}

// knownKeys are all keys that are read for other sources.
var knownKeys = []string{keyUsername, keyPassword, keyBearer, keyCA, keyClientCert, keyClientKey, keyIdentity,
	keyPassphrase, keyKnownHosts}

// permanentError marks errors that a retry cannot change.
type permanentError struct{ error }

// Permanent implements the interface that gitops.Fetcher documents.
func (permanentError) Permanent() bool { return true }

func (e permanentError) Unwrap() error { return e.error }

func permanent(format string, args ...any) error { return permanentError{fmt.Errorf(format, args...)} }

// Fetcher fetches repositories and caches them below a directory. It is safe for concurrent use.
type Fetcher struct{ cache *commitCache }

// New returns a fetcher. It empties the directory, which holds nothing but its cache.
func New(dir string) (*Fetcher, error) {
	c, err := newCache(dir)
	if err != nil {
		return nil, err
	}
	return &Fetcher{cache: c}, nil
}

// Close removes the cache.
func (f *Fetcher) Close() error { return f.cache.close() }

// session is a connection to the git-upload-pack of a server.
type session interface {
	// advertise returns the references.
	advertise(ctx context.Context) (*packp.AdvRefs, error)
	// upload requests a pack. The caller closes the response.
	upload(ctx context.Context, request *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
	close()
}

// Fetch implements gitops.Fetcher.
func (f *Fetcher) Fetch(ctx context.Context, s *gitops.Source, secrets gitops.Secrets) (gitops.Snapshot, error) {
	credentials := secrets.Credentials
	keys := knownKeys
	if s.Spec.IsOCI() {
		keys = registryKeys
	}
	for _, k := range slices.Sorted(maps.Keys(credentials)) {
		if !slices.Contains(keys, k) {
			return gitops.Snapshot{}, fmt.Errorf("the Secret has the key %q, which is none of %q", k, keys)
		}
	}
	switch {
	case s.Spec.IsOCI():
		return f.fetchOCI(ctx, s, credentials)
	case s.Spec.IsHelmRepository():
		return f.fetchChart(ctx, s, credentials)
	case s.Spec.IsFolder():
		u, err := url.Parse(s.Spec.URL)
		if err != nil {
			return gitops.Snapshot{}, permanentError{err}
		}
		return readFolder(ctx, u.Path)
	}
	return f.fetchGit(ctx, s, secrets)
}

// fetchGit returns the snapshot of a Git repository.
func (f *Fetcher) fetchGit(ctx context.Context, s *gitops.Source, secrets gitops.Secrets) (gitops.Snapshot, error) {
	credentials := secrets.Credentials
	conn, err := connect(ctx, dialerOf(s.Namespace), &s.Spec, credentials)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	defer conn.close()
	adv, err := conn.advertise(ctx)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	refs, head := references(adv)
	selected, err := gitops.SelectRevision(&s.Spec, refs, head)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	var keys *signers
	if s.Spec.Verify != nil {
		if keys, err = parseSigners(secrets.Signers); err != nil {
			return gitops.Snapshot{}, unverified(fmt.Errorf("secret %s: %w", s.Spec.Verify.Secret, err))
		}
	}
	wanted := selected.Hash
	if s.Spec.VerifiesTag() {
		if wanted = selected.Tag; wanted == "" {
			return gitops.Snapshot{}, unverified(fmt.Errorf("tag %s is not annotated, so that it has no signature",
				selected.Label))
		}
	}
	// The server has just accepted these credentials, so that another source's pack of the same commit may be used.
	dir, release, err := f.cache.get(ctx, cacheKey(&s.Spec, credentials, wanted),
		func(dir string) error {
			return download(ctx, conn, adv, plumbing.NewHash(wanted), dir)
		})
	if err != nil {
		return gitops.Snapshot{}, fmt.Errorf("download %s: %w", selected.Revision(), err)
	}
	if keys != nil {
		if err := keys.verify(openStorage(dir), selected, s.Spec.VerifiesTag(), time.Now()); err != nil {
			release()
			return gitops.Snapshot{}, unverified(fmt.Errorf("verify %s: %w", selected.Revision(), err))
		}
	}
	files := newLazyFiles(func() (*tree, error) {
		t, err := openTree(openStorage(dir), plumbing.NewHash(selected.Hash))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", selected.Revision(), err)
		}
		return t, nil
	})
	return gitops.Snapshot{Revision: selected.Revision(), Files: files, Release: release}, nil
}

// connect returns a session that has sent nothing yet.
func connect(ctx context.Context, direct dialer, spec *gitsource.Spec,
	credentials map[string][]byte) (session, error) {
	at, err := parseURL(spec.URL)
	if err != nil {
		return nil, permanentError{err}
	}
	if at.Scheme == "ssh" {
		return dialSSH(ctx, direct, at, spec.Proxy, credentials)
	}
	return newHTTP(direct, at, spec.Proxy, credentials)
}

// parseURL parses the URL of a repository, also in the short form of ssh.
func parseURL(text string) (*url.URL, error) {
	if !gitsource.IsSCP(text) {
		return url.Parse(text)
	}
	user, rest := "", text
	if i := indexByte(text, '@'); i >= 0 {
		user, rest = text[:i], text[i+1:]
	}
	i := indexByte(rest, ':')
	u := &url.URL{Scheme: "ssh", Host: rest[:i], Path: rest[i+1:]}
	if user != "" {
		u.User = url.User(user)
	}
	return u, nil
}

func indexByte(text string, b byte) int { return slices.Index([]byte(text), b) }

// references returns the references of a repository, with the commits of annotated tags, and its default branch.
func references(adv *packp.AdvRefs) (refs []gitops.Ref, head string) {
	for name, hash := range adv.References {
		ref := gitops.Ref{Name: name, Hash: hash.String()}
		if peeled, ok := adv.Peeled[name]; ok {
			ref.Hash, ref.Tag = peeled.String(), hash.String()
		}
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b gitops.Ref) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	for _, value := range adv.Capabilities.Get(capability.SymRef) {
		if target, ok := cutPrefix(value, "HEAD:"); ok {
			return refs, target
		}
	}
	if adv.Head == nil {
		return refs, ""
	}
	for _, name := range []string{"refs/heads/main", "refs/heads/master"} { // of a server that does not say
		if hash, ok := adv.References[name]; ok && hash == *adv.Head {
			return refs, name
		}
	}
	return refs, ""
}

func cutPrefix(text, prefix string) (string, bool) {
	if len(text) < len(prefix) || text[:len(prefix)] != prefix {
		return "", false
	}
	return text[len(prefix):], true
}

// cacheKey identifies a commit or an artifact as seen with some credentials and through some proxy. Another source's
// proxy can send something else than the server does.
func cacheKey(spec *gitsource.Spec, credentials map[string][]byte, id string) string {
	// maps are encoded in the order of their keys
	text, err := json.Marshal([]any{spec.URL, spec.Proxy, credentials, id})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// download requests a commit, or a tag and its commit, without the history, and writes its pack into a repository in
// dir.
func download(ctx context.Context, conn session, adv *packp.AdvRefs, wanted plumbing.Hash, dir string) error {
	request := packp.NewUploadPackRequestFromCapabilities(adv.Capabilities)
	request.Wants = []plumbing.Hash{wanted}
	if adv.Capabilities.Supports(capability.Shallow) {
		request.Depth = packp.DepthCommits(1)
		if err := request.Capabilities.Set(capability.Shallow); err != nil {
			return err
		}
	}
	if adv.Capabilities.Supports(capability.NoProgress) {
		if err := request.Capabilities.Set(capability.NoProgress); err != nil {
			return err
		}
	}
	response, err := conn.upload(ctx, request)
	if err != nil {
		return err
	}
	defer response.Close()
	pack := demultiplex(request.Capabilities, response)
	file, err := os.CreateTemp(dir, "incoming-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}()
	n, err := io.Copy(file, pack)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("receive the pack: %w", err)
	case n == 0:
		return errors.New("the server has sent no objects; perhaps it does not give out commits that no reference " +
			"names")
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := checkPack(ctx, file); err != nil {
		return fmt.Errorf("the pack is refused: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := indexPack(ctx, dir, file); err != nil {
		return err
	}
	return checkComplete(ctx, openStorage(dir), wanted)
}

// demultiplex removes the multiplexing with progress messages, which request has negotiated.
func demultiplex(negotiated *capability.List, r io.Reader) io.Reader {
	switch {
	case negotiated.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, r)
	case negotiated.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, r)
	}
	return r
}

// limitedReader returns an error when more than a number of bytes is read.
type limitedReader struct {
	r    io.Reader
	left int64
	err  error
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, l.err
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n, l.err
	}
	return n, err
}
