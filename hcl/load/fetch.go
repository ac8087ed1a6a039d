package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"

	"clusterctl/hcl/config"
)

// fetchTimeout is how long fetching a repository may take.
const fetchTimeout = 10 * time.Minute

// FetchModules fetches the Git modules of a configuration, including nested ones, into a directory beside it, and
// writes the lock file. It fetches locked commits, unless update is set: then it resolves every reference again.
func FetchModules(ctx context.Context, path string, update bool,
	notify func(string)) (*Configuration, hcl.Diagnostics) {
	c := &Configuration{Cluster: &config.Cluster{}, parser: hclparse.NewParser()}
	defer func() { c.Files = c.parser.Files() }()
	paths, dir, err := configurationFiles(path)
	c.Dir = dir
	if err != nil {
		return c, hcl.Diagnostics{newError(nil, "No configuration", "%v", err)}
	}
	locks, err := readLocks(filepath.Join(dir, lockFile))
	if err != nil {
		return c, hcl.Diagnostics{newError(nil, "Lock file that cannot be read", "%v", err)}
	}
	g := &moduleFetcher{
		ctx:      ctx,
		c:        c,
		root:     dir,
		update:   update,
		oldLocks: locks,
		newLocks: map[string]moduleLock{},
		report:   notify,
		folders:  map[string]bool{},
	}
	diags := g.fetchFolder(dir, paths)
	if diags.HasErrors() {
		return c, diags
	}
	if len(g.newLocks) == 0 && len(locks) == 0 {
		return c, diags
	}
	if err := writeLocks(filepath.Join(dir, lockFile), g.newLocks); err != nil {
		diags = append(diags, newError(nil, "Lock file that cannot be written", "%v", err))
	}
	return c, diags
}

// moduleFetcher fetches the modules that a configuration calls.
type moduleFetcher struct {
	ctx                context.Context
	c                  *Configuration
	root               string
	update             bool
	oldLocks, newLocks map[string]moduleLock
	report             func(string)
	folders            map[string]bool // directories that were processed
}

func (g *moduleFetcher) fetchFolder(dir string, paths []string) hcl.Diagnostics {
	if g.folders[dir] {
		return nil
	}
	g.folders[dir] = true
	blocks, diags := g.c.parseFiles(paths)
	for _, b := range blocks {
		if b.Type != "module" {
			continue
		}
		call, more := decodeCall(b)
		diags = append(diags, more...)
		if more.HasErrors() {
			continue
		}
		inner, err := g.fetchModule(dir, call.source)
		var paths []string
		if err == nil {
			paths, _, err = configurationFiles(inner)
		}
		if err != nil {
			diags = append(diags, newError(call.at, "Module that cannot be fetched", "%s", toSentence(err.Error())))
			continue
		}
		diags = append(diags, g.fetchFolder(inner, paths)...)
	}
	return diags
}

// fetchModule returns the directory of a module, and fetches it if necessary.
func (g *moduleFetcher) fetchModule(from, source string) (string, error) {
	_, r, err := parseSource(source)
	if err != nil {
		return "", err
	}
	here := &fetchedModules{root: g.root, locks: g.oldLocks, compared: map[string]error{}}
	if r == nil {
		return here.folder(from, source)
	}
	dir := filepath.Join(g.root, modulesFolder, r.folderName())
	if _, done := g.newLocks[r.id()]; !done {
		old, locked := g.oldLocks[r.id()]
		if locked && !g.update && here.compare(r, dir) == nil {
			g.newLocks[r.id()] = old
			g.report(fmt.Sprintf("%s: commit %s, already here", r.id(), old.commit))
		} else if err := g.fetchRepository(r, dir, old); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, filepath.FromSlash(r.subdirectory)), nil
}

// fetchRepository fetches a repository into a directory, and records its lock.
func (g *moduleFetcher) fetchRepository(r *repository, dir string, old moduleLock) error {
	ctx, cancel := context.WithTimeout(g.ctx, fetchTimeout)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	clone := filepath.Join(temporary, "clone")
	if _, err := runGit(ctx, "clone", "--quiet", "--no-checkout", "--", r.url, clone); err != nil {
		return fmt.Errorf("fetch %s: %w", r.id(), err)
	}
	commit := old.commit
	if commit == "" || g.update {
		if commit, err = resolveRef(ctx, clone, r.ref); err != nil {
			return fmt.Errorf("fetch %s: %w", r.id(), err)
		}
	}
	if _, err := runGit(ctx, "-C", clone, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach",
		commit); err != nil {
		return fmt.Errorf("fetch %s: %w", r.id(), err)
	}
	if err := os.RemoveAll(filepath.Join(clone, ".git")); err != nil {
		return err
	}
	hash, err := hashFolder(clone)
	if err != nil {
		return err
	}
	if old.hash != "" && !g.update && hash != old.hash {
		return fmt.Errorf("fetch %s: commit %s has the hash %s, and %s says %s: the repository does not "+
			"give what it gave", r.id(), commit, hash, lockFile, old.hash)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(clone, dir); err != nil {
		return err
	}
	g.newLocks[r.id()] = moduleLock{commit: commit, hash: hash}
	g.report(fmt.Sprintf("%s: commit %s", r.id(), commit))
	return nil
}

// resolveRef returns the commit of a branch, tag or commit in a clone.
func resolveRef(ctx context.Context, clone, ref string) (string, error) {
	tries := []string{"refs/remotes/origin/" + ref, "refs/tags/" + ref, ref}
	if ref == "" {
		tries = []string{"HEAD"}
	}
	for _, try := range tries {
		if out, err := runGit(ctx, "-C", clone, "rev-parse", "--quiet", "--verify", "--end-of-options", try+
			"^{commit}"); err == nil {
			return strings.TrimSpace(out), nil
		}
	}
	return "", fmt.Errorf("it has no branch, tag or commit %q", ref)
}

// runGit runs git without prompts, and only with the allowed protocols.
func runGit(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:http:ssh:git:file",
		"GIT_LFS_SKIP_SMUDGE=1")
	c.WaitDelay = 5 * time.Second
	var out, problems strings.Builder
	c.Stdout, c.Stderr = &out, &problems
	err := c.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("there is no git on this machine: install it")
	case ctx.Err() != nil:
		return "", fmt.Errorf("git %s: %w", args[0], ctx.Err())
	case err != nil:
		text := strings.TrimSpace(problems.String())
		return "", fmt.Errorf("git: %s", text[max(0, len(text)-400):])
	}
	return out.String(), nil
}
