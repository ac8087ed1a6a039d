// Package render turns the files of GitSources into objects with kustomize and Helm. Renderers read nothing but the
// files of the repository and the values that a source names. Remote bases, plugins, and charts that are not in the
// repository are refused.
package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Renderer implements gitops.Renderer.
type Renderer struct {
	// KubeVersion is the cluster's version, such as v1.37.0, for charts.
	KubeVersion string
	// Processes render everything but plain manifests. They are required for sources that have it.
	Processes *Processes
}

// kustomizations are the names of kustomize's files.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// Render implements gitops.Renderer.
func (r Renderer) Render(ctx context.Context, s *gitops.Source, from gitops.Snapshot,
	read gitops.Reader) ([]gitops.Object, error) {
	kind, err := detect(s, from.Files)
	if err != nil {
		return nil, err
	}
	if kind == gitsource.RendererYAML {
		return gitops.Manifests{}.Render(ctx, s, from, read)
	}
	t, err := r.taskOf(ctx, s, kind, read)
	if err != nil {
		return nil, err
	}
	return r.Processes.run(ctx, s.Namespace, from.Files, t)
}

// taskOf returns the task of a source.
func (r Renderer) taskOf(ctx context.Context, s *gitops.Source, kind string, read gitops.Reader) (task, error) {
	t := task{Renderer: kind, Folder: gitops.Folder(s.Spec.Path), Name: s.Name, Namespace: s.DefaultNamespace(),
		KubeVersion: r.KubeVersion}
	if kind != gitsource.RendererHelm {
		return t, nil
	}
	settings := s.Spec.Helm
	if settings == nil {
		settings = &gitsource.Helm{}
	}
	var err error
	if t.Values, err = valuesOf(ctx, s, settings, read); err != nil {
		return t, err
	}
	if t.Helm, err = json.Marshal(settings); err != nil {
		return t, fmt.Errorf("encode spec.helm: %w", err)
	}
	return t, nil
}

// detect returns the renderer of a source: the declared one, or that which the files of the folder ask for.
func detect(s *gitops.Source, files fs.FS) (string, error) {
	if s.Spec.Renderer != "" && s.Spec.Renderer != gitsource.RendererAuto {
		return s.Spec.Renderer, nil
	}
	if s.Spec.IsHelmRepository() {
		return gitsource.RendererHelm, nil
	}
	root := gitops.Folder(s.Spec.Path)
	has := func(names ...string) (bool, error) {
		for _, name := range names {
			_, err := fs.Stat(files, path.Join(root, name))
			if err == nil {
				return true, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
		return false, nil
	}
	isKustomize, err := has(kustomizations...)
	if err != nil {
		return "", err
	}
	isChart, err := has("Chart.yaml")
	switch {
	case err != nil:
		return "", err
	case isKustomize && isChart:
		return "", fmt.Errorf("the folder %q has both a kustomization and a Chart.yaml; set spec.renderer", root)
	case isKustomize:
		return gitsource.RendererKustomize, nil
	case isChart:
		return gitsource.RendererHelm, nil
	case s.Spec.Helm != nil:
		return "", fmt.Errorf("spec.helm is set, and the folder %q has no Chart.yaml", root)
	}
	isHCL, err := hasOnlyHCL(files, root)
	if err == nil && isHCL {
		return gitsource.RendererHCL, nil
	}
	return gitsource.RendererYAML, err
}

// hasOnlyHCL reports whether a folder has files of the configuration language and no manifests.
func hasOnlyHCL(files fs.FS, root string) (bool, error) {
	entries, err := fs.ReadDir(files, root)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // reported by the renderer
	}
	found := false
	for _, e := range entries {
		name := e.Name()
		switch {
		case e.IsDir() || strings.HasPrefix(name, "."):
		case slices.Contains([]string{".yaml", ".yml"}, path.Ext(name)):
			return false, nil
		case strings.HasSuffix(name, ".hcl"):
			found = true
		}
	}
	return found, err
}

// Isolate keeps the libraries of this process from reaching the network and from running programs, as a second defence
// behind the checks of this package. Connections of this program do not use http.DefaultTransport.
func Isolate() error {
	http.DefaultTransport = refusingTransport{}
	limitArchives()
	return os.Setenv("PATH", "/nonexistent")
}

// refusingTransport refuses every request.
type refusingTransport struct{}

// RoundTrip implements http.RoundTripper.
func (refusingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("rendering must not read %s from the network; copy it into the repository", r.URL.Redacted())
}

// firstIn returns the first of several keys that a map has.
func firstIn(content map[string]any, keys ...string) (string, bool) {
	i := slices.IndexFunc(keys, func(k string) bool { return content[k] != nil })
	if i < 0 {
		return "", false
	}
	return keys[i], true
}
