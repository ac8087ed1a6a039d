// Package gitopstest provides a repository and a cluster in memory for tests of package gitops. They behave like the
// real ones: a repository has references and commits, and a cluster has kinds, namespaces, rights, field managers and
// generations.
package gitopstest

import (
	"context"
	"crypto/sha1" // #nosec: commit IDs of tests
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing/fstest"

	"clusterctl/daemons/gitops"
)

// Repository is a Git repository, and the fetcher of it. Its methods are safe for concurrent use.
type Repository struct {
	mu      sync.Mutex
	commits map[string]fstest.MapFS
	refs    []gitops.Ref
	err     error
	fetched int
}

// DefaultBranch is the repository's default branch.
const DefaultBranch = "main"

// Commit adds a commit with these files to the default branch, and returns its ID.
func (r *Repository) Commit(files map[string]string) string {
	id := r.Add(files)
	r.SetRef("refs/heads/"+DefaultBranch, id)
	return id
}

// Add adds a commit that no reference names.
func (r *Repository) Add(files map[string]string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commits == nil {
		r.commits = map[string]fstest.MapFS{}
	}
	sum := sha1.Sum(fmt.Append(nil, len(r.commits), files)) // #nosec
	id := hex.EncodeToString(sum[:])
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	r.commits[id] = tree
	return id
}

// Link adds a symbolic link to a commit.
func (r *Repository) Link(commit, name, target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits[commit][name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// SetRef sets a reference.
func (r *Repository) SetRef(name, commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs = slices.DeleteFunc(r.refs, func(ref gitops.Ref) bool { return ref.Name == name })
	r.refs = append(r.refs, gitops.Ref{Name: name, Hash: commit})
}

// Fail makes all later requests fail with an error. A nil error makes them succeed again.
func (r *Repository) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// Fetched returns how often the repository was fetched.
func (r *Repository) Fetched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetched
}

// Fetch implements gitops.Fetcher.
func (r *Repository) Fetch(ctx context.Context, s *gitops.Source, _ gitops.Secrets) (gitops.Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetched++
	if err := errors.Join(r.err, ctx.Err()); err != nil {
		return gitops.Snapshot{}, err
	}
	selected, err := gitops.SelectRevision(&s.Spec, r.refs, "refs/heads/"+DefaultBranch)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	tree, ok := r.commits[selected.Hash]
	if !ok {
		return gitops.Snapshot{}, fmt.Errorf("the repository has no commit %s", selected.Hash)
	}
	return gitops.Snapshot{Revision: selected.Revision(), Files: tree}, nil
}
