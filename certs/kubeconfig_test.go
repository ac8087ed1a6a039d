package certs_test

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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

// Kubeconfig writes what client-go writes, whatever the names are.
func TestKubeconfigsAreWrittenAsClientGoWritesThem(t *testing.T) {
	names := []string{
		"home", "system:node:a", "system:kube-proxy:node-a.example", "a@b", "on", "Off", "yes", "no", "true", "null",
		"y",
		"n", "1", "1e3", "0x1", "~", "", "a b", "a: b", "a:", "-a", "a #b", "[a]", "2026-11-27", "a/b", "e1", "x_", "ä",
		"infinity", "nan", "inf", "https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://api.example:6443/path",
	}
	data := []string{"", "x", strings.Repeat("certificate ", 300)}
	for i, name := range names {
		for j, other := range []string{names[0], name, names[(i+7)%len(names)]} {
			ca, cert, key := data[i%3], data[(i+j)%3], data[j%3]
			pair := certs.Pair{Cert: []byte(cert), Key: []byte(key)}
			got, err := certs.Kubeconfig(other, "https://"+other, name, []byte(ca), pair)
			if err != nil {
				t.Fatal(err)
			}
			context := name + "@" + other
			want, err := clientcmd.Write(clientcmdapi.Config{
				Clusters: map[string]*clientcmdapi.Cluster{
					other: {Server: "https://" + other, CertificateAuthorityData: []byte(ca)},
				},
				AuthInfos: map[string]*clientcmdapi.AuthInfo{
					name: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key},
				},
				Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: other, AuthInfo: name}},
				CurrentContext: context,
			})
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("of %q and %q:\n%s\nwant\n%s", name, other, got, want)
			}
		}
	}
}
