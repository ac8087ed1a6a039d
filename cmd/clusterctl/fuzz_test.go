package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// FuzzMergeKubeconfig merges a cluster's kubeconfig into files. Its context becomes the current one, or the file is
// unchanged.
func FuzzMergeKubeconfig(f *testing.F) {
	const added = `{"apiVersion":"v1","kind":"Config","current-context":"a@c","contexts":[{"name":"a@c","context":{"cluster":"c","user":"a"}}],
"clusters":[{"name":"c","cluster":{"server":"https://10.0.0.1:6443"}}],"users":[{"name":"a","user":{"client-key-data":"eA=="}}]}`
	for _, text := range []string{"", added, "{}", "clusters: null\n", "apiVersion: v1\nkind: Config\nclusters:\n- " +
		"name: c\n", "contexts:\n- name: a@c\n  context: null\n",
		"clusters: [{name: c, cluster: {server: x, certificate-authority-data: " +
			"eA==}}]\n", "a: &a [*a]\n", "users:\n- null\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		err := mergeKubeconfig(path, []byte(added))
		now, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil {
			if !bytes.Equal(now, text) {
				t.Errorf("it failed (%v) and changed the file", err)
			}
			return
		}
		merged, err := clientcmd.Load(now)
		if err != nil || merged.CurrentContext != "a@c" || merged.Clusters["c"] == nil ||
			merged.Clusters["c"].Server != "https://10.0.0.1:6443" {
			t.Errorf("%v: %s", err, now)
		}
	})
}
