package render

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// renderInProcess renders a source as the controller does.
func renderInProcess(t *testing.T, spec gitsource.Spec, files fs.FS) ([]gitops.Object, error) {
	t.Helper()
	p, err := NewProcesses(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := sourceOf(spec)
	s.Namespace = "team"
	return Renderer{KubeVersion: "v1.37.0", Processes: p}.Render(t.Context(), s,
		gitops.Snapshot{Revision: "r", Files: files}, objects{})
}

func treeOf(files map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

// A template that uses up memory must not end the controller, which serves all namespaces.
func TestATemplateThatUsesUpMemoryFailsAlone(t *testing.T) {
	for name, template := range map[string]string{
		"one block":   `{{ repeat 100000000 "xxxxxxxx" | len }}`,
		"many blocks": `{{ $l := list }}{{ range until 64 }}{{ $l = append $l (repeat 1000000 "xxxxxxxx") }}{{ end }}`,
	} {
		for range 3 { // Go places its heap at random
			chart := newChart(map[string]string{"templates/a.yaml": template})
			_, err := renderInProcess(t, gitsource.Spec{}, treeOf(chart))
			if err == nil || !strings.Contains(err.Error(), "MiB of memory") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestProcessesRenderWhatTheFilesContain(t *testing.T) {
	number := gitsource.Spec{Helm: &gitsource.Helm{Values: map[string]any{"replicas": int64(1_000_000), "x": nil}}}
	for name, row := range map[string]struct {
		spec  gitsource.Spec
		files map[string]string
	}{
		"kustomize": {files: map[string]string{"kustomization.yaml": "resources: [base, b.yaml]", "b.yaml": "",
			"base/kustomization.yaml": "resources: [a.yaml]", "base/a.yaml": configMap}},
		"helm": {number, newChart(map[string]string{"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: a}\n" +
			"data: {value: \"{{ if eq (toString .Values.replicas) \"1000000\" }}one{{ end }}\"}"})},
	} {
		list, err := renderInProcess(t, row.spec, treeOf(row.files))
		if err != nil || fmt.Sprint(summary(list)) != "[ConfigMap a one]" {
			t.Errorf("%s: %v, %v", name, summary(list), err)
		}
	}
}

// sealedFiles have a file that cannot be decrypted.
type sealedFiles struct{ fstest.MapFS }

// Open implements fs.FS.
func (f sealedFiles) Open(name string) (fs.File, error) {
	if name == "values.yaml" {
		return nil, &gitops.ReasonError{Reason: gitops.ReasonDecryption, Err: errors.New("it has no key")}
	}
	return f.MapFS.Open(name)
}

func TestProcessesKeepTheReasonOfAnUnreadableFile(t *testing.T) {
	files := sealedFiles{treeOf(newChart(map[string]string{"values.yaml": "sealed"}))}
	_, err := renderInProcess(t, gitsource.Spec{}, files)
	var named *gitops.ReasonError
	if !errors.As(err, &named) || named.Reason != gitops.ReasonDecryption {
		t.Errorf("%v", err)
	}
	missing := treeOf(map[string]string{"kustomization.yaml": "resources: [missing.yaml]"})
	if _, err := renderInProcess(t, gitsource.Spec{}, missing); err == nil ||
		!strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("%v", err)
	}
}

func TestSourcesOfANamespaceShareAProcess(t *testing.T) {
	p, err := NewProcesses(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	good := treeOf(map[string]string{"kustomization.yaml": "resources: [a.yaml]", "a.yaml": configMap})
	bad := treeOf(map[string]string{"kustomization.yaml": "resources: [missing.yaml]"})
	hostile := treeOf(newChart(map[string]string{
		"templates/a.yaml": `{{ $x := repeat 100000000 "xxxxxxxx" }}{{ len $x }}`}))
	for i, row := range []struct {
		namespace string
		files     fs.FS
		isValid   bool
		started   int
	}{
		{"team", good, true, 1}, {"team", bad, false, 1}, {"team", good, true, 1}, {"other", good, true, 2},
		{"team", good, true, 3}, {"team", hostile, false, 3}, {"team", good, true, 4},
	} {
		s := sourceOf(gitsource.Spec{})
		s.Namespace = row.namespace
		_, err := Renderer{KubeVersion: "v1.37.0", Processes: p}.Render(t.Context(), s,
			gitops.Snapshot{Revision: "r", Files: row.files}, objects{})
		if (err == nil) != row.isValid || p.started != row.started {
			t.Errorf("task %d: %v, after %d processes", i, err, p.started)
		}
	}
}
