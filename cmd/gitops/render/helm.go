package render

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/ignore"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Bounds of charts.
const (
	maxChartBytes  = 32 << 20 // bytes of a packed dependency, inflated
	maxOutputBytes = 32 << 20 // bytes of all rendered templates
)

// hookAnnotation names the events at which Helm creates an object.
const hookAnnotation = "helm.sh/hook"

// renderHelm renders the chart in the task's folder, as `helm template` does. The function lookup finds nothing.
func renderHelm(ctx context.Context, t task, files fs.FS) ([]gitops.Object, error) {
	root := t.Folder
	c, err := loadChart(ctx, files, root)
	if err != nil {
		return nil, err
	}
	settings := gitsource.Helm{}
	if err := json.UnmarshalCaseSensitivePreserveInts(t.Helm, &settings); err != nil {
		return nil, fmt.Errorf("read the settings of the chart: %w", err)
	}
	values := map[string]any{}
	for _, text := range t.Values {
		var more map[string]any
		if err := yaml.UnmarshalStrict(text, &more); err != nil {
			return nil, errors.New("values are not a map in YAML")
		}
		values = loader.MergeMaps(values, more)
	}
	values = loader.MergeMaps(values, settings.Values)
	rendered, err := template(ctx, c, t, settings.Release, values)
	if err != nil {
		return nil, fmt.Errorf("chart %q: %w", root, err)
	}
	var objects []gitops.Object
	if !settings.SkipCRDs {
		for _, crd := range c.CRDObjects() {
			list, err := gitops.ParseManifest(path.Join(root, crd.Name), crd.File.Data)
			if err != nil {
				return nil, err
			}
			objects = append(objects, list...)
		}
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		text := rendered[name]
		if strings.HasSuffix(name, "NOTES.txt") || strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		if size += len(text); size > maxOutputBytes {
			return nil, fmt.Errorf("chart %q renders more than %d bytes", root, maxOutputBytes)
		}
		_, inner, _ := strings.Cut(name, "/") // without the name of the chart
		list, err := gitops.ParseManifest(path.Join(root, inner), []byte(text))
		if err != nil {
			return nil, fmt.Errorf("rendered %w", err)
		}
		for _, o := range list {
			o.Line = 0 // a line of the output, not of the template
			if keep, err := convertHook(o); err != nil {
				return nil, err
			} else if keep {
				objects = append(objects, o)
			}
		}
	}
	return objects, nil
}

// loadChart reads a chart from the repository. Its dependencies must be in its folder charts.
func loadChart(ctx context.Context, files fs.FS, root string) (*chart.Chart, error) {
	budget := gitops.NewBudget()
	rules := ignore.Empty()
	text, err := budget.ReadFile(files, path.Join(root, ignore.HelmIgnore))
	switch {
	case err == nil:
		if rules, err = ignore.Parse(bytes.NewReader(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(root, ignore.HelmIgnore), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	rules.AddDefaults()
	var list []*archive.BufferedFile
	err = fs.WalkDir(files, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		inner := strings.TrimPrefix(strings.TrimPrefix(name, root), "/")
		if root == "." {
			inner = name
		}
		if inner == "" || inner == "." {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case rules.Ignore(inner, info) && d.IsDir():
			return fs.SkipDir
		case rules.Ignore(inner, info), d.IsDir():
			return nil
		}
		text, err := budget.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := checkChartFile(name, text); err != nil {
			return err
		}
		list = append(list, &archive.BufferedFile{Name: inner, Data: bytes.TrimPrefix(text, []byte("\uFEFF"))})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	c, err := loader.LoadFiles(list)
	if err != nil {
		return nil, fmt.Errorf("chart %q: %w", root, err)
	}
	return c, checkChart(c, root)
}

// remoteReference matches a reference of a JSON schema to a URL.
var remoteReference = regexp.MustCompile(`"\$ref"\s*:\s*"[A-Za-z][A-Za-z0-9+.-]*:`)

// limitArchives limits the packed charts in charts/, which the library inflates.
func limitArchives() { archive.MaxDecompressedChartSize = maxChartBytes }

// checkChartFile returns an error if a file of a chart makes Helm read something remote.
func checkChartFile(name string, text []byte) error {
	switch path.Base(name) {
	case "values.schema.json":
		if remoteReference.Match(text) {
			return fmt.Errorf("%s: the schema refers to another one by a URL, which is not read", name)
		}
	case "Chart.yaml", "values.yaml", "requirements.yaml":
		return gitops.CheckYAML(name, text)
	}
	return nil
}

// checkChart returns an error if a chart cannot be rendered alone.
func checkChart(c *chart.Chart, root string) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("chart %q: %w", root, err)
	}
	if c.Metadata.Type == "library" {
		return fmt.Errorf("chart %q is a library, which renders no objects", root)
	}
	var missing []string
	for _, required := range c.Metadata.Dependencies {
		found := slices.ContainsFunc(c.Dependencies(), func(d *chart.Chart) bool { return d.Name() == required.Name })
		if !found {
			missing = append(missing, required.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("chart %q: its folder charts lacks %s; run `helm dependency build` and commit the "+
			"folder", root,
			strings.Join(missing, ", "))
	}
	return nil
}

// valuesOf returns the texts of the ConfigMaps and Secrets with values of a source. Later ones take precedence, and
// those in the source take precedence over all.
func valuesOf(ctx context.Context, s *gitops.Source, settings *gitsource.Helm,
	read gitops.Reader) (texts [][]byte, err error) {
	for _, from := range settings.ValuesFrom {
		key := cmp.Or(from.Key, gitsource.DefaultValuesKey)
		at := fmt.Sprintf("values from %s %s/%s, key %s", from.Kind, s.Namespace, from.Name, key)
		o, err := read.Get(ctx,
			gitops.ObjectID{APIVersion: "v1", Kind: from.Kind, Namespace: s.Namespace, Name: from.Name})
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", at, err)
		case o == nil && from.Optional:
			continue
		case o == nil:
			return nil, fmt.Errorf("%s: it does not exist", at)
		}
		data, err := gitops.DataOf(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		text, ok := data[key]
		if !ok && from.Optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("%s: there is no such key", at)
		}
		if err := gitops.CheckYAML(at, text); err != nil {
			return nil, err
		}
		var more map[string]any
		if err := yaml.UnmarshalStrict(text, &more); err != nil {
			// The error can contain values of a Secret.
			return nil, fmt.Errorf("%s: it is not a map in YAML", at)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// template renders the templates of a chart.
func template(ctx context.Context, c *chart.Chart, t task, release string,
	values map[string]any) (map[string]string, error) {
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	version, err := common.ParseKubeVersion(t.KubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities.KubeVersion = *version
	if need := c.Metadata.KubeVersion; need != "" && !chartutil.IsCompatibleRange(need, version.Version) {
		return nil, fmt.Errorf("it requires Kubernetes %s, and the cluster has %s", need, version.Version)
	}
	options := common.ReleaseOptions{Name: cmp.Or(release, t.Name), Namespace: t.Namespace, Revision: 1,
		IsInstall: true}
	if err := chartutil.ValidateReleaseName(options.Name); err != nil {
		return nil, fmt.Errorf("the release %q: %w; set spec.helm.release", options.Name, err)
	}
	complete, err := commonutil.ToRenderValues(c, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{}.RenderWithContext(ctx, c, complete)
}

// hookWaves are the waves of hooks. Hooks that run at other events are left out.
var hookWaves = map[string]string{"pre-install": "-1", "pre-upgrade": "-1", "post-install": "1", "post-upgrade": "1"}

// convertHook changes a hook into an object of an earlier or later wave. A hook that has changed is created again, as
// Helm does by default. It returns false for hooks of tests, deletions and rollbacks, which do not happen here.
func convertHook(o gitops.Object) (keep bool, err error) {
	annotations := o.GetAnnotations()
	text, isHook := annotations[hookAnnotation]
	if !isHook {
		return true, nil
	}
	wave := ""
	for event := range strings.SplitSeq(text, ",") {
		w, ok := hookWaves[strings.TrimSpace(event)]
		if !ok {
			continue
		}
		if wave != "" && wave != w {
			return false, fmt.Errorf("%s: %s %s: the hook %q runs both before and after, which one object "+
				"cannot", o.File,
				o.GetKind(), o.GetName(), text)
		}
		wave = w
	}
	if wave == "" {
		return false, nil
	}
	for k, v := range map[string]string{gitsource.WaveAnnotation: wave,
		gitsource.RecreateAnnotation: gitsource.Enabled} {
		if _, ok := annotations[k]; !ok {
			annotations[k] = v
		}
	}
	o.SetAnnotations(annotations)
	return true, nil
}
