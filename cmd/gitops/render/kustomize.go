package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/gitops"
)

// maxKustomizeReads limits how often kustomize reads a file, and thereby its time: each read is followed by work on all
// objects of the overlay.
const maxKustomizeReads = 4000

// renderKustomize runs kustomize on a folder. Its schemas are global variables, so that it does not run twice at the
// same time.
func renderKustomize(ctx context.Context, root string, from fs.FS) ([]gitops.Object, error) {
	files := &readOnly{ctx: ctx, files: from, budget: gitops.NewBudget().WithFiles(maxKustomizeReads)}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/"+strings.TrimPrefix(root, "."))
	if files.err != nil { // kustomize makes further attempts after an error
		return nil, files.err
	}
	if err != nil {
		return nil, fmt.Errorf("kustomize: %w", err)
	}
	if n := resources.Size(); n > gitops.MaxObjects {
		return nil, fmt.Errorf("kustomize: %d objects are rendered, and at most %d are allowed", n, gitops.MaxObjects)
	}
	text, err := resources.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("kustomize: %w", err)
	}
	objects, err := gitops.ParseManifest("kustomize build "+root, text)
	for i := range objects {
		objects[i].File, objects[i].Line = root, 0 // lines of the output mean nothing in the repository
	}
	return objects, err
}

// remotePattern matches what kustomize would download: URLs, and the short forms of repositories.
var remotePattern = regexp.MustCompile(
	`^[A-Za-z][A-Za-z0-9+.-]*://|^git::|^[A-Za-z0-9_.-]+@[A-Za-z0-9.-]+:|^(?:www\.)?(?:github|gitlab|bitbucket)\.[a-z]+[/:]|[?&](?:ref|version|submodules|timeout)=|_git/`)

// forbiddenFields are fields of a kustomization that run programs or download charts.
var forbiddenFields = []string{"helmCharts", "helmChartInflationGenerator", "helmGlobals"}

// readOnly is the file system that kustomize sees: the files of the repository below "/". It refuses kustomizations
// that name something outside of the repository. Its budget limits how often files are read, and thereby overlays that
// multiply.
type readOnly struct {
	ctx    context.Context // of one call of Render, which this value does not outlive
	files  fs.FS
	budget *gitops.Budget
	err    error // first error that ends the rendering
}

var _ filesys.FileSystem = (*readOnly)(nil)

var errReadOnly = errors.New("the repository cannot be written")

// name returns the path for package fs.
func (r *readOnly) name(p string) string { return gitops.Folder(filepath.ToSlash(p)) }

// end records an error that ends the rendering.
func (r *readOnly) end(err error) error {
	if r.err == nil {
		r.err = err
	}
	return err
}

// ReadFile implements filesys.FileSystem.
func (r *readOnly) ReadFile(p string) ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	if err := r.ctx.Err(); err != nil {
		return nil, r.end(err)
	}
	name := r.name(p)
	text, err := r.budget.ReadFile(r.files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, r.end(err)
	}
	if err := gitops.CheckYAML(name, text); err != nil {
		return nil, r.end(err)
	}
	if slices.Contains(kustomizations, path.Base(name)) {
		if err := checkKustomization(name, text); err != nil {
			return nil, r.end(err)
		}
	}
	return text, nil
}

// checkKustomization returns an error if a kustomization names something that kustomize would download or run.
func checkKustomization(name string, text []byte) error {
	var content map[string]any
	if err := yaml.Unmarshal(text, &content); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if field, ok := firstIn(content, forbiddenFields...); ok {
		return fmt.Errorf("%s: %s needs the helm program, which is not run; declare a source of its own for the chart",
			name, field)
	}
	for _, field := range []string{"resources", "bases", "components", "crds", "configurations", "generators",
		"transformers", "validators", "patchesStrategicMerge", "patches", "patchesJson6902", "replacements", "openapi",
		"configMapGenerator", "secretGenerator"} {
		if err := checkLocal(name+": "+field, content[field]); err != nil {
			return err
		}
	}
	return nil
}

// checkLocal returns an error if a value contains the address of something remote. Literal values of generators and
// inline patches are no addresses.
func checkLocal(at string, value any) error {
	switch v := value.(type) {
	case string:
		entry := v
		if _, file, ok := strings.Cut(v, "="); ok && !strings.Contains(v, "?") { // KEY=FILE of a generator
			entry = file
		}
		if !strings.Contains(v, "\n") && (remotePattern.MatchString(v) || remotePattern.MatchString(entry)) {
			return fmt.Errorf("%s: %q is remote; only files of the repository are read, so copy it there", at, v)
		}
	case []any:
		for _, e := range v {
			if err := checkLocal(at, e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, k := range []string{"path", "files", "envs", "env", "source"} {
			if err := checkLocal(at+"."+k, v[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Open implements filesys.FileSystem.
func (r *readOnly) Open(p string) (filesys.File, error) {
	text, err := r.ReadFile(p)
	if err != nil {
		return nil, err
	}
	info, err := fs.Stat(r.files, r.name(p))
	if err != nil {
		return nil, err
	}
	return readFile{bytes.NewReader(text), info}, nil
}

// readFile is an open file.
type readFile struct {
	*bytes.Reader
	info fs.FileInfo
}

// Close implements filesys.File.
func (readFile) Close() error { return nil }

// Write implements filesys.File.
func (readFile) Write([]byte) (int, error) { return 0, errReadOnly }

// Stat implements filesys.File.
func (f readFile) Stat() (fs.FileInfo, error) { return f.info, nil }

var _ io.ReadWriteCloser = readFile{}

// IsDir implements filesys.FileSystem.
func (r *readOnly) IsDir(p string) bool {
	info, err := fs.Stat(r.files, r.name(p))
	return err == nil && info.IsDir()
}

// Exists implements filesys.FileSystem.
func (r *readOnly) Exists(p string) bool {
	_, err := fs.Stat(r.files, r.name(p))
	return err == nil
}

// ReadDir implements filesys.FileSystem.
func (r *readOnly) ReadDir(p string) ([]string, error) {
	entries, err := fs.ReadDir(r.files, r.name(p))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// CleanedAbs implements filesys.FileSystem.
func (r *readOnly) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	name := r.name(p)
	info, err := fs.Stat(r.files, name)
	if err != nil {
		return "", "", fmt.Errorf("%q does not exist in the repository", name)
	}
	absolute := "/" + strings.TrimPrefix(name, ".")
	if info.IsDir() {
		return filesys.ConfirmedDir(absolute), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(absolute)), path.Base(absolute), nil
}

// Glob implements filesys.FileSystem. Building a kustomization does not use it.
func (*readOnly) Glob(string) ([]string, error) {
	return nil, errors.New("patterns of files are not supported")
}

// Walk implements filesys.FileSystem.
func (r *readOnly) Walk(p string, f filepath.WalkFunc) error {
	return fs.WalkDir(r.files, r.name(p), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return f("/"+name, nil, err)
		}
		info, err := d.Info()
		return f("/"+name, info, err)
	})
}

// Create implements filesys.FileSystem.
func (*readOnly) Create(string) (filesys.File, error) { return nil, errReadOnly }

// Mkdir implements filesys.FileSystem.
func (*readOnly) Mkdir(string) error { return errReadOnly }

// MkdirAll implements filesys.FileSystem.
func (*readOnly) MkdirAll(string) error { return errReadOnly }

// RemoveAll implements filesys.FileSystem.
func (*readOnly) RemoveAll(string) error { return errReadOnly }

// WriteFile implements filesys.FileSystem.
func (*readOnly) WriteFile(string, []byte) error { return errReadOnly }
