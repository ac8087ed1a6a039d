package load

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Paths, beside the configuration, of what was fetched for it.
const (
	modulesFolder = ".clusterctl/modules"
	lockFile      = ".clusterctl.lock.hcl"
)

// repository is a module's source in a Git repository.
type repository struct {
	url          string
	ref          string // a branch, tag or commit; empty means the repository's default
	subdirectory string // subdirectory
}

// parseSource parses a module's source: a directory relative to the calling module, or a Git repository.
func parseSource(source string) (folder string, r *repository, err error) {
	rest, git := strings.CutPrefix(source, "git::")
	switch {
	case !git && (strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../") || source == "." ||
		source == ".." || filepath.IsAbs(source)):
		return source, nil, nil
	case !git:
		return "", nil, fmt.Errorf("%q is not a source of a module: write a folder, as \"./modules/web\", or a Git "+
			"repository, as \"git::https://HOST/REPOSITORY//FOLDER?ref=TAG\"", source)
	}
	r = &repository{}
	rest, query, _ := strings.Cut(rest, "?")
	for _, part := range strings.Split(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case part == "":
		case name == "ref" && value != "" && !strings.HasPrefix(value, "-"):
			r.ref = value
		default:
			return "", nil, fmt.Errorf("%q: ref=BRANCH, TAG or COMMIT is all that may follow the question mark", source)
		}
	}
	scheme, after, ok := strings.Cut(rest, "://")
	if !ok || !strings.Contains(" https http ssh git file ", " "+scheme+" ") || strings.HasPrefix(after, "-") {
		return "", nil, fmt.Errorf("%q: the repository is written as https://…, ssh://… or file://…", source)
	}
	after, r.subdirectory, _ = strings.Cut(after, "//")
	if scheme == "file" && after == "" { // written as file:///path
		return "", nil, fmt.Errorf(
			"%q: the path of a repository on this machine has three slashes before it: file:///srv/git/modules", source)
	}
	r.url = scheme + "://" + after
	if r.subdirectory != "" && !filepath.IsLocal(r.subdirectory) {
		return "", nil, fmt.Errorf("%q: the folder %q is not inside the repository", source, r.subdirectory)
	}
	return "", r, nil
}

// id returns the name of the repository and reference in the lock file.
func (r *repository) id() string {
	if r.ref == "" {
		return "git::" + r.url
	}
	return "git::" + r.url + "?ref=" + r.ref
}

// folderName returns the name of the repository's directory among the modules.
func (r *repository) folderName() string {
	sum := sha256.Sum256([]byte(r.id()))
	name := strings.TrimSuffix(path.Base(r.url), ".git")
	return name + "-" + hex.EncodeToString(sum[:6])
}

// fetchedModules gives access to the modules that clusterctl get has fetched.
type fetchedModules struct {
	root     string // directory of the configuration
	limit    string // directory that no local source leaves; empty means none
	locks    map[string]moduleLock
	compared map[string]error // results of comparing repositories with the lock file
}

// folder returns the directory of a module that is called from another directory. A fetched module must match the lock
// file.
func (f *fetchedModules) folder(from, source string) (string, error) {
	local, r, err := parseSource(source)
	if err != nil {
		return "", err
	}
	if f.limit != "" {
		if r != nil {
			return "", fmt.Errorf("%q: nothing is fetched for objects of a Git repository; copy the module into the "+
				"repository", source)
		}
		dir := place{dir: from, root: f.limit}.path(local)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("the repository has no folder %s", place{root: f.limit}.shown(dir))
		}
		return dir, nil
	}
	if r == nil {
		dir := local
		if !filepath.IsAbs(local) {
			dir = filepath.Join(from, local)
		}
		modules := filepath.Join(f.root, modulesFolder)
		if inside, err := filepath.Rel(modules, from); err == nil && filepath.IsLocal(inside) && inside != "." {
			whole := filepath.Join(modules, strings.Split(filepath.ToSlash(inside), "/")[0])
			if rel, err := filepath.Rel(whole, dir); err != nil || !filepath.IsLocal(rel) {
				return "", fmt.Errorf("%q leads out of the repository that the module was fetched from", source)
			}
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "", fmt.Errorf("there is no folder %s", dir)
		}
		return dir, nil
	}
	dir := filepath.Join(f.root, modulesFolder, r.folderName())
	if err := f.checkOnce(r, dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.FromSlash(r.subdirectory)), nil
}

// checkOnce compares a fetched repository with the lock file, at most once.
func (f *fetchedModules) checkOnce(r *repository, dir string) error {
	if err, ok := f.compared[r.id()]; ok {
		return err
	}
	if f.locks == nil {
		locks, err := readLocks(filepath.Join(f.root, lockFile))
		if err != nil {
			return err
		}
		f.locks, f.compared = locks, map[string]error{}
	}
	err := f.compare(r, dir)
	f.compared[r.id()] = err
	return err
}

func (f *fetchedModules) compare(r *repository, dir string) error {
	l, locked := f.locks[r.id()]
	if _, err := os.Stat(dir); err != nil || !locked {
		return fmt.Errorf("%s has not been fetched: run clusterctl get, and keep %s with the configuration", r.id(),
			lockFile)
	}
	hash, err := hashFolder(dir)
	if err != nil {
		return err
	}
	if hash != l.hash {
		return fmt.Errorf("what is in %s is not what %s says of %s: its hash is %s and should be %s. clusterctl get "+
			"fetches it again; clusterctl get -update writes the repository's current commit to the lock file", dir,
			lockFile, r.id(), hash, l.hash)
	}
	return nil
}
