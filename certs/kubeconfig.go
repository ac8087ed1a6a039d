package certs

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig with one cluster, one user, one context and embedded credentials.
func Kubeconfig(cluster, server, user string, ca []byte, pair Pair) ([]byte, error) {
	if isPlain(cluster) && isPlain(server) && isPlain(user) && len(ca) > 0 && len(pair.Cert) > 0 && len(pair.Key) > 0 {
		encode := base64.StdEncoding.EncodeToString
		return []byte(kubeconfigText(cluster, server, user, encode(ca), encode(pair.Cert), encode(pair.Key))), nil
	}
	context := user + "@" + cluster
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key},
		},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return text, nil
}

// The lines of a kubeconfig before its credentials.
const (
	certLine = "\n    client-certificate-data: "
	keyLine  = "\n    client-key-data: "
)

// kubeconfigText returns the text that client-go writes for plain names and data in base64. Its YAML encoder takes most
// of the time in which a certificate is issued.
func kubeconfigText(cluster, server, user, ca, cert, key string) string {
	context := user + "@" + cluster
	return "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: " + ca +
		"\n    server: " + server + "\n  name: " + cluster +
		"\ncontexts:\n- context:\n    cluster: " + cluster + "\n    user: " + user + "\n  name: " + context +
		"\ncurrent-context: " + context + "\nkind: Config\nusers:\n- name: " + user + "\n  user:" +
		certLine + cert + keyLine + key + "\n"
}

var (
	plainPattern  = regexp.MustCompile(`^[a-z][a-zA-Z0-9.:@/_-]*[a-zA-Z0-9]$`)
	quotedPattern = regexp.MustCompile(`^(?i:null|true|false|yes|no|on|off)$`) // YAML reads these words as other types
)

// isPlain reports whether YAML certainly writes a string without quotes.
func isPlain(s string) bool { return plainPattern.MatchString(s) && !quotedPattern.MatchString(s) }

// ParseKubeconfig returns the credentials in a text if it is exactly what Kubeconfig writes for these arguments. It
// returns false for any other text, including an equivalent kubeconfig, which must be parsed.
func ParseKubeconfig(text []byte, cluster, server, user string, ca []byte) (Pair, bool) {
	_, rest, _ := bytes.Cut(text, []byte(certLine))
	cert, _, _ := bytes.Cut(rest, []byte("\n"))
	_, rest, _ = bytes.Cut(rest, []byte(keyLine))
	key, _, ended := bytes.Cut(rest, []byte("\n"))
	if !ended {
		return Pair{}, false
	}
	if string(text) != kubeconfigText(cluster, server, user, base64.StdEncoding.EncodeToString(ca), string(cert),
		string(key)) {
		return Pair{}, false
	}
	var p Pair
	var err error
	if p.Cert, err = base64.StdEncoding.AppendDecode(nil, cert); err != nil {
		return Pair{}, false
	}
	if p.Key, err = base64.StdEncoding.AppendDecode(nil, key); err != nil {
		return Pair{}, false
	}
	return p, true
}
