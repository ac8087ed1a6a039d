package certs_test

import (
	"bytes"
	"strings"
	"testing"

	"clusterctl/certs"
)

// ParseKubeconfig recognizes a kubeconfig that this program wrote without parsing YAML, which would take most of the
// time of checks of many machines. Every other text is left to a YAML parser.
func TestKubeconfigsAreRecognizedExactly(t *testing.T) {
	ca, pair := []byte("an authority\n"), certs.Pair{Cert: []byte("a certificate\n"), Key: []byte("a key\n")}
	text, err := certs.Kubeconfig("home", "https://10.0.0.1:6443", "system:node:a", ca, pair)
	if err != nil {
		t.Fatal(err)
	}
	got, ours := certs.ParseKubeconfig(text, "home", "https://10.0.0.1:6443", "system:node:a", ca)
	if !ours || !bytes.Equal(got.Cert, pair.Cert) || !bytes.Equal(got.Key, pair.Key) {
		t.Errorf("%v %q of what was written:\n%s", ours, got, text)
	}
	for name, other := range map[string]string{
		"another server": strings.Replace(string(text), "10.0.0.1", "10.0.0.2", 1),
		"another context": strings.Replace(string(text), "current-context: "+
			"system:node:a@home", "current-context: other", 1),
		"something behind": string(text) + "x: y\n",
		"a broken key":     strings.Replace(string(text), "client-key-data: ", "client-key-data: !", 1),
		"nothing":          "",
	} {
		if _, ours := certs.ParseKubeconfig([]byte(other), "home", "https://10.0.0.1:6443", "system:node:a", ca); ours {
			t.Errorf("%s: taken for what was written", name)
		}
	}
	if _, ours := certs.ParseKubeconfig(text, "home", "https://10.0.0.1:6443", "system:node:a",
		[]byte("another")); ours {
		t.Error("another authority: taken for what was written")
	}
}
