package render

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// renderer renders in the process of the test, which takes less time.
var renderer inProcess

type inProcess struct{}

// Render implements gitops.Renderer.
func (inProcess) Render(ctx context.Context, s *gitops.Source, from gitops.Snapshot,
	read gitops.Reader) ([]gitops.Object, error) {
	r := Renderer{KubeVersion: "v1.37.0"}
	kind, err := detect(s, from.Files)
	if err != nil || kind == gitsource.RendererYAML {
		return r.Render(ctx, s, from, read)
	}
	t, err := r.taskOf(ctx, s, kind, read)
	if err != nil {
		return nil, err
	}
	return t.render(ctx, from.Files)
}

// objects is a reader of a few objects.
type objects map[gitops.ObjectID]*unstructured.Unstructured

// Get implements gitops.Reader.
func (o objects) Get(_ context.Context, id gitops.ObjectID) (*unstructured.Unstructured, error) {
	return o[id], nil
}

func snapshot(files map[string]string) gitops.Snapshot {
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return gitops.Snapshot{Revision: "main@sha1:0", Files: tree}
}

func sourceOf(spec gitsource.Spec) *gitops.Source {
	s := &gitops.Source{Spec: spec}
	s.Namespace, s.Name = gitsource.Namespace, "platform"
	return s
}

// summary returns the objects as "Kind name value".
func summary(list []gitops.Object) (lines []string) {
	for _, o := range list {
		value, _, _ := unstructured.NestedString(o.Object, "data", "value")
		lines = append(lines, strings.TrimSpace(o.GetKind()+" "+o.GetName()+" "+value))
	}
	slices.Sort(lines)
	return lines
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {value: one}\n"

// Proves P06.
func TestTheFilesOfAFolderChooseTheRenderer(t *testing.T) {
	files := map[string]string{
		"plain/a.yaml":               configMap,
		"plain/.hidden/b.yaml":       "not: an object",
		"overlay/kustomization.yaml": "resources: [../plain/a.yaml]\n",
		"base/kustomization.yaml":    "resources: [a.yaml]\n",
		"base/a.yaml":                configMap,
		"home/kustomization.yml": "resources: [../base]\nnamePrefix: home-\npatches:\n- patch: |-\n    - {op: " +
			"replace, path: /data/value, value: two}\n  target: {kind: ConfigMap}\n",
		"generated/Kustomization": "configMapGenerator:\n- name: g\n  files: [value=v.txt]\n  options: " +
			"{disableNameSuffixHash: true}\n",
		"generated/v.txt":   "three",
		"chart/Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"chart/values.yaml": "value: four\n",
		"chart/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name " +
			"}}}\ndata: {value: {{ .Values.value }}}\n",
		"chart/templates/_helpers.tpl": `{{- define "x" }}x{{ end }}`,
		"chart/templates/NOTES.txt":    "notes",
		"both/Chart.yaml":              "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"both/kustomization.yaml":      "resources: []\n",
	}
	for _, row := range []struct {
		spec gitsource.Spec
		want []string
	}{
		{gitsource.Spec{Path: "plain"}, []string{"ConfigMap a one"}},
		{gitsource.Spec{Path: "home"}, []string{"ConfigMap home-a two"}},
		{gitsource.Spec{Path: "generated"}, []string{"ConfigMap g three"}},
		{gitsource.Spec{Path: "chart"}, []string{"ConfigMap platform four"}},
		{gitsource.Spec{Path: "chart", Helm: &gitsource.Helm{Release: "web", Values: map[string]any{"value": "five"}}},
			[]string{"ConfigMap web five"}},
		{gitsource.Spec{Path: "base", Renderer: gitsource.RendererKustomize}, []string{"ConfigMap a one"}},
	} {
		got, err := renderer.Render(t.Context(), sourceOf(row.spec), snapshot(files), objects{})
		if err != nil || !slices.Equal(summary(got), row.want) {
			t.Errorf("%+v renders %q, %v, want %q", row.spec, summary(got), err, row.want)
		}
	}
	for _, row := range []struct {
		spec gitsource.Spec
		want string
	}{
		{gitsource.Spec{Path: "none"}, "no folder"},
		{gitsource.Spec{Path: "both"}, "set spec.renderer"},
		{gitsource.Spec{Path: "plain", Helm: &gitsource.Helm{}}, "no Chart.yaml"},
		{gitsource.Spec{Path: "plain", Renderer: gitsource.RendererHelm}, "Chart.yaml"},
		// kustomize reads files of other folders only through their own kustomizations
		{gitsource.Spec{Path: "overlay"}, "a.yaml"},
	} {
		if got, err := renderer.Render(t.Context(), sourceOf(row.spec), snapshot(files), objects{}); err == nil ||
			!strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v renders %q, %v, want %q", row.spec, summary(got), err, row.want)
		}
	}
}

func TestKustomizationsReadNothingRemoteAndRunNothing(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"a base over https":     {"resources: ['https://git.example/a.git//base?ref=v1']", "is remote"},
		"a file over http":      {"resources: ['http://169.254.169.254/latest']", "is remote"},
		"a base of GitHub":      {"resources: ['github.com/kubernetes/x//base?ref=v1']", "is remote"},
		"a base over ssh":       {"resources: ['git@git.example:team/a.git']", "is remote"},
		"a component":           {"components: ['https://git.example/a']", "is remote"},
		"a patch":               {"patches: [{path: 'https://git.example/p.yaml'}]", "is remote"},
		"a file of a generator": {"configMapGenerator: [{name: a, files: ['k=https://git.example/x']}]", "is remote"},
		"a generator":           {"generators: ['https://git.example/g.yaml']", "is remote"},
		"a chart":               {"helmCharts: [{name: a, repo: 'https://charts.example'}]", "needs the helm program"},
		"an exec plugin":        {"generators: [plugin.yaml]", "plugin"},
		"a function":            {"transformers: [function.yaml]", "plugin"},
		"a path that climbs":    {"resources: [../../../etc/passwd]", "passwd"},
		"an absolute path":      {"resources: [/etc/passwd]", "passwd"},
		"a cycle":               {"resources: [../app]", "cycle"},
		"an alias bomb":         {"resources: [bomb.yaml]", "after its aliases are expanded"},
		"no YAML":               {"resources: [", "kustomization.yaml"},
	} {
		bomb := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" +
			strings.TrimSuffix(strings.Repeat("*a,", 1000), ",") + "]\n"
		files := map[string]string{"deep/app/kustomization.yaml": row.text, "deep/app/bomb.yaml": bomb,
			"deep/app/plugin.yaml": "apiVersion: someteam.example.com/v1\nkind: Exec\nmetadata: {name: plugin}\n",
			"deep/app/function.yaml": "apiVersion: x/v1\nkind: F\nmetadata:\n  name: function\n  annotations:\n" +
				"    config.kubernetes.io/function: |\n      exec: {path: ./run.sh}\n",
		}
		_, err := renderer.Render(t.Context(), sourceOf(gitsource.Spec{Path: "deep/app"}), snapshot(files), objects{})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

// The schema of one source does not change how the patches of another are merged.
func TestASchemaConcernsItsOwnSourceOnly(t *testing.T) {
	files := map[string]string{
		"hostile/kustomization.yaml": "resources: [a.yaml]\nopenapi: {path: schema.json}\n",
		"hostile/a.yaml":             configMap,
		"hostile/schema.json": `{"definitions": {"v1.Pod": {"properties": {"spec": {"properties": {"containers":
			{"type": "array", "items": {"type": "object"}}}}},
			"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}]}}}`,
		"pod/kustomization.yaml": "resources: [p.yaml]\npatches:\n- patch: |-\n    {apiVersion: v1, kind: Pod, " +
			"metadata: {name: p}, spec: {containers: [{name: b, image: two}]}}\n",
		"pod/p.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n" +
			"  - {name: a, image: one}\n  - {name: b, image: one}\n",
	}
	for _, folder := range []string{"hostile", "pod"} {
		got, err := renderer.Render(t.Context(), sourceOf(gitsource.Spec{Path: folder}), snapshot(files), objects{})
		if err != nil {
			t.Fatal(err)
		}
		if containers, _, _ := unstructured.NestedSlice(got[0].Object, "spec", "containers"); folder == "pod" &&
			len(containers) != 2 {
			t.Errorf("the containers are %v", containers)
		}
	}
}

// Overlays that multiply are stopped by the number of files that are read.
func TestOverlaysThatMultiplyAreBounded(t *testing.T) {
	files := map[string]string{"l0/kustomization.yaml": "resources: [a.yaml]", "l0/a.yaml": configMap}
	const levels = 20
	for i := 1; i <= levels; i++ {
		for _, side := range []string{"p", "q"} {
			files[fmt.Sprintf("l%d%s/kustomization.yaml", i, side)] =
				fmt.Sprintf("resources: [../l%d]\nnamePrefix: %s\n", i-1, side)
		}
		files[fmt.Sprintf("l%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../l%dp, ../l%dq]\n", i, i)
	}
	_, err := renderer.Render(t.Context(), sourceOf(gitsource.Spec{Path: fmt.Sprintf("l%d", levels)}), snapshot(files),
		objects{})
	if err == nil || !strings.Contains(err.Error(), "files are read") {
		t.Errorf("%v", err)
	}
}

func newChart(more map[string]string) map[string]string {
	files := map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n"}
	for name, text := range more {
		files[name] = text
	}
	return files
}

func TestValuesComeFromSecretsAndConfigMaps(t *testing.T) {
	id := func(kind, name string) gitops.ObjectID {
		return gitops.ObjectID{APIVersion: "v1", Kind: kind, Namespace: gitsource.Namespace, Name: name}
	}
	cluster := objects{
		id("ConfigMap", "common"): {Object: map[string]any{"kind": "ConfigMap",
			"data": map[string]any{"values.yaml": "value: config\nother: kept\n"}}},
		id("Secret", "secret"): {Object: map[string]any{"kind": "Secret",
			"data": map[string]any{"x.yaml": "dmFsdWU6IHNlY3JldAo="}}}, // value: secret
		id("Secret", "broken"): {Object: map[string]any{"kind": "Secret",
			"data": map[string]any{"values.yaml": "aHVudGVyMg=="}}}, // hunter2
	}
	files := newChart(map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" +
		"data: {value: \"{{ .Values.value }}-{{ .Values.other }}\"}\n"})
	for _, row := range []struct {
		from   []gitsource.ValuesFrom
		values map[string]any
		want   string // the object, or a part of the error
	}{
		{[]gitsource.ValuesFrom{{Kind: "ConfigMap", Name: "common"}}, nil, "ConfigMap a config-kept"},
		{[]gitsource.ValuesFrom{{Kind: "ConfigMap", Name: "common"}, {Kind: "Secret", Name: "secret", Key: "x.yaml"}},
			nil,
			"ConfigMap a secret-kept"},
		{[]gitsource.ValuesFrom{{Kind: "ConfigMap", Name: "common"}}, map[string]any{"value": "own"},
			"ConfigMap a own-kept"},
		{[]gitsource.ValuesFrom{{Kind: "ConfigMap", Name: "none", Optional: true}},
			map[string]any{"value": "x", "other": "y"},
			"ConfigMap a x-y"},
		{[]gitsource.ValuesFrom{{Kind: "ConfigMap", Name: "none"}}, nil, "does not exist"},
		{[]gitsource.ValuesFrom{{Kind: "Secret", Name: "secret"}}, nil, "no such key"},
		{[]gitsource.ValuesFrom{{Kind: "Secret", Name: "broken"}}, nil, "not a map"},
	} {
		got, err := renderer.Render(t.Context(),
			sourceOf(gitsource.Spec{Helm: &gitsource.Helm{ValuesFrom: row.from, Values: row.values}}), snapshot(files),
			cluster)
		text := strings.Join(summary(got), ",")
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, row.want) || strings.Contains(text, "hunter2") {
			t.Errorf("%+v: %s, want %s", row.from, text, row.want)
		}
	}
}

func TestChartsHaveDefinitionsHooksAndDependencies(t *testing.T) {
	dependency := packed(t, map[string]string{"db/Chart.yaml": "apiVersion: v2\nname: db\nversion: 1.0.0\n",
		"db/templates/d.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: db}\ndata: {value: \"{{ " +
			".Values.size }}\"}\n",
		"db/values.yaml": "size: small\n"})
	hook := func(name, event string) string {
		return "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: " + name + "\n  annotations: {helm.sh/hook: " +
			"\"" + event + "\"}\n"
	}
	files := newChart(map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{name: db, version: " +
			"1.0.0}]\n",
		"values.yaml":         "db: {size: large}\n",
		"charts/db-1.0.0.tgz": dependency,
		"crds/widgets.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: " +
			"{name: widgets.x}\n",
		"templates/before.yaml": hook("before", "pre-install,pre-upgrade"),
		"templates/after.yaml":  hook("after", "post-install"),
		"templates/test.yaml":   hook("test", "test"),
		"templates/delete.yaml": hook("delete", "pre-delete"),
		"templates/lookup.yaml": "{{ if not (lookup \"v1\" \"Secret\" \"default\" \"x\") }}apiVersion: v1\nkind: " +
			"ConfigMap\nmetadata: {name: looked}\n{{ end }}",
		"templates/version.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: version}\ndata: {value: {{ " +
			".Capabilities.KubeVersion.Version }}}\n",
		"templates/namespaced.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ns}\ndata: {value: {{ " +
			".Release.Namespace }}}\n",
		".helmignore": "ignored/\n",
		"ignored/x":   "x",
	})
	got, err := renderer.Render(t.Context(), sourceOf(gitsource.Spec{TargetNamespace: "shop"}), snapshot(files),
		objects{})
	want := []string{"ConfigMap db large", "ConfigMap looked", "ConfigMap ns shop", "ConfigMap version v1.37.0",
		"CustomResourceDefinition widgets.x", "Job after", "Job before"}
	if err != nil || !slices.Equal(summary(got), want) {
		t.Fatalf("%q, %v", summary(got), err)
	}
	for _, o := range got {
		if wave := map[string]string{"before": "-1", "after": "1"}[o.GetName()]; o.GetKind() == "Job" &&
			(o.GetAnnotations()[gitsource.WaveAnnotation] != wave ||
				o.GetAnnotations()[gitsource.RecreateAnnotation] != gitsource.Enabled) {
			t.Errorf("the annotations of %s are %v", o.GetName(), o.GetAnnotations())
		}
	}
	got, err = renderer.Render(t.Context(), sourceOf(gitsource.Spec{Helm: &gitsource.Helm{SkipCRDs: true}}),
		snapshot(files),
		objects{})
	if err != nil || slices.Contains(summary(got), "CustomResourceDefinition widgets.x") {
		t.Errorf("%q, %v", summary(got), err)
	}
}

// packed returns a packed chart.
func packed(t *testing.T, files map[string]string) string {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for name, text := range files {
		header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := errors.Join(archive.WriteHeader(header), second(archive.Write([]byte(text)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func second(_ int, err error) error { return err }

func TestHostileChartsAreErrors(t *testing.T) {
	limitArchives()
	for name, row := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a missing dependency": {map[string]string{
			"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{name: db, version: 1.0.0, " +
				"repository: 'https://x'}]\n"},
			"lacks db"},
		"a zip bomb": {map[string]string{"charts/db-1.0.0.tgz": packed(t, map[string]string{
			"db/Chart.yaml": "apiVersion: v2\nname: db\nversion: 1.0.0\n",
			"db/bomb":       strings.Repeat("\x00", maxChartBytes+1)})}, "larger than"},
		"an archive that climbs": {map[string]string{"charts/db-1.0.0.tgz": packed(t, map[string]string{
			"db/../../x": "x"})}, "parent directory"},
		"a library": {map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ntype: " +
			"library\n"}, "library"},
		"a remote schema":  {map[string]string{"values.schema.json": `{"$ref": "https://schema.example/x"}`}, "by a URL"},
		"another schema":   {map[string]string{"values.schema.json": `{"required": ["x"]}`}, "x"},
		"endless includes": {map[string]string{"templates/a.yaml": `{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}`}, "a.yaml"},
		"a newer cluster": {map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: " +
			"1.0.0\nkubeVersion: '>=1.99.0'\n"}, "requires Kubernetes"},
		"a failing template": {map[string]string{"templates/a.yaml": `{{ fail "no" }}`}, "no"},
		"no object":          {map[string]string{"templates/a.yaml": "hello"}, "templates/a.yaml"},
		"a hook both before and after": {map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: " +
			"ConfigMap\nmetadata:\n" +
			"  name: a\n  annotations: {helm.sh/hook: \"pre-install,post-install\"}\n"}, "both before and after"},
	} {
		_, err := renderer.Render(t.Context(), sourceOf(gitsource.Spec{}), snapshot(newChart(row.files)), objects{})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func TestLibrariesCannotReachTheNetwork(t *testing.T) {
	before := http.DefaultTransport
	t.Setenv("PATH", "/bin")
	defer func() { http.DefaultTransport = before }()
	if err := Isolate(); err != nil {
		t.Fatal(err)
	}
	if _, err := (&http.Client{}).Get("http://127.0.0.1:1/x"); err == nil ||
		!strings.Contains(err.Error(), "must not read") {
		t.Errorf("%v", err)
	}
}
