package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"filippo.io/age"

	"clusterctl/cmd/gitops/sops"
	"clusterctl/cmd/gitops/sops/sopstest"
	"clusterctl/daemons/gitops"
)

// All renderers read decrypted files, and errors of their libraries lose the values.
// Proves P06.
func TestEncryptedFilesAreRendered(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	secret := sopstest.NewFile(t)
	manifest := "apiVersion: " + secret.Plain("v1") + "\nkind: " + secret.Plain("Secret") + "\nmetadata:\n  name: " +
		secret.Plain("db") + "\nstringData:\n  password: " +
		secret.Value("correct-horse", "stringData:password", "str") +
		"\n" + secret.Metadata("  encrypted_regex: ^stringData$\n", id)
	values := sopstest.NewFile(t)
	chartValues := "password: " + values.Value("correct-horse", "password", "str") + "\n" + values.Metadata("", id)
	const chart = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"plain/secret.yaml":          manifest,
		"overlay/kustomization.yaml": "resources: [../overlay/secret.yaml]\nnamePrefix: my-\n",
		"overlay/secret.yaml":        manifest,
		"chart/Chart.yaml":           chart,
		"chart/values.yaml":          chartValues,
		"chart/templates/a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: " +
			"{{ .Values.password }}}\n",
		"failing/Chart.yaml":       chart,
		"failing/values.yaml":      chartValues,
		"failing/templates/a.yaml": "{{ fail .Values.password }}",
		"broken/kustomization.yaml": "resources: [secret.yaml]\npatches:\n- path: patch.yaml\n  target: {kind: " +
			"Secret}\n",
		"broken/secret.yaml": manifest,
		"broken/patch.yaml":  chartValues,
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	decrypted, redact, err := sops.Decrypter{}.Decrypt(files, map[string][]byte{"a.agekey": []byte(id.String())})
	if err != nil {
		t.Fatal(err)
	}
	renderer := newRenderer(t)
	renderOne := func(path string) ([]gitops.Object, error) {
		s := &gitops.Source{}
		s.Namespace, s.Name, s.Spec.Path = "kube-system", "platform", path
		return renderer.Render(t.Context(), s,
			gitops.Snapshot{Revision: "main", Files: decrypted}, nil)
	}
	for _, path := range []string{"plain", "overlay", "chart"} {
		objects, err := renderOne(path)
		if err != nil || len(objects) != 1 ||
			fmt.Sprint(objects[0].Object["stringData"]) != "map[password:correct-horse]" ||
			objects[0].Object["sops"] != nil {
			t.Errorf("%s: %v, %v", path, objects, err)
		}
	}
	for _, path := range []string{"failing", "broken"} {
		_, err := renderOne(path)
		if err == nil {
			t.Errorf("%s is rendered", path)
			continue
		}
		if got := redact(err.Error()); strings.Contains(got, "correct") || strings.Contains(got, "horse") {
			t.Errorf("%s: the error shows the value: %s", path, got)
		}
	}
}
