package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/hcl/load"
	"clusterctl/provision/workload"
)

// hclErrors is the number of errors of a configuration that are reported.
const hclErrors = 20

// copyFiles copies the files of a folder into a directory, and all files of the repository if a configuration in the
// folder refers to others.
func copyFiles(ctx context.Context, files fs.FS, root, dir string) error {
	info, err := fs.Stat(files, root)
	if err != nil || !info.IsDir() {
		return fmt.Errorf("the repository has no folder %q; see spec.path", root)
	}
	budget := gitops.NewBudget()
	leaves := false
	if err := copyTree(ctx, files, root, dir, "", budget, &leaves); err != nil || !leaves || root == "." {
		return err
	}
	return copyTree(ctx, files, ".", dir, root, budget, &leaves)
}

// copyTree copies the files below a folder except those below skip. It sets leaves if a configuration may refer to
// files outside of the folder. Symbolic links are left out, so that reading one is an error.
func copyTree(ctx context.Context, files fs.FS, root, dir, skip string, budget *gitops.Budget, leaves *bool) error {
	return fs.WalkDir(files, root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.IsDir() && (d.Name() == ".git" || skip != "" && name == skip):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, filepath.FromSlash(name)), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := budget.ReadFile(files, name)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, load.Extension) && bytes.Contains(text, []byte("..")) {
			*leaves = true
		}
		return os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), text, 0o600)
	})
}

// renderHCL renders files of the configuration language to the objects that `clusterctl apply` would apply.
func renderHCL(t task) ([]gitops.Object, error) {
	objects, err := evaluateFolder(t.Dir, t.Folder)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), t.Dir+"/", ""))
	}
	return objects, nil
}

// evaluateFolder returns the objects of a folder below a directory.
func evaluateFolder(dir, folder string) ([]gitops.Object, error) {
	at := filepath.Join(dir, filepath.FromSlash(path.Clean("/"+folder)))
	c, diags := load.Load(load.Options{Path: at, Root: dir, WorkloadObjects: workload.ObjectsOf})
	if diags.HasErrors() {
		var texts []string
		for _, err := range diags.Errs() {
			if len(texts) == hclErrors {
				texts = append(texts, "and more")
				break
			}
			texts = append(texts, err.Error())
		}
		return nil, errors.New(strings.Join(texts, "\n"))
	}
	if len(c.Cluster.Deferred) > 0 {
		return nil, fmt.Errorf("%s depends on values that are not known", strings.Join(c.Cluster.Deferred, ", "))
	}
	list, err := workload.DeclaredObjects(c.Cluster, gitsource.Manager)
	if err != nil {
		return nil, err
	}
	if len(list) > gitops.MaxObjects {
		return nil, fmt.Errorf("the folder has more than %d objects", gitops.MaxObjects)
	}
	objects := make([]gitops.Object, 0, len(list))
	for _, d := range list {
		annotate(d)
		file := strings.TrimPrefix(d.Source.File, dir+"/")
		if file == "" { // a namespace that objects need
			file = folder
		}
		objects = append(objects, gitops.Object{Unstructured: d.Object, File: file, Line: d.Source.Line})
	}
	return objects, nil
}

// annotate writes what the engine of apply knows of an object into the annotations that the controller reads.
func annotate(d workload.Desired) {
	annotations := d.Object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	set := func(name, value string) {
		if _, isDeclared := annotations[name]; !isDeclared {
			annotations[name] = value
		}
	}
	if d.Wave > 0 {
		set(gitsource.WaveAnnotation, strconv.Itoa(d.Wave))
	}
	if d.IsNeverPruned || d.IsProtected {
		set(gitsource.PruneAnnotation, gitsource.Disabled)
	}
	if len(annotations) > 0 {
		d.Object.SetAnnotations(annotations)
	}
}
