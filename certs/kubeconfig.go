package certs

import (
	"bytes"
	"encoding/base64"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig with one cluster, one user, one context and embedded credentials.
func Kubeconfig(cluster, server, user string, ca []byte, pair Pair) ([]byte, error) {
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

// ParseKubeconfig returns the credentials in a text if it is exactly what Kubeconfig writes for these arguments. It
// returns false for any other text, including an equivalent kubeconfig, which must be parsed.
func ParseKubeconfig(text []byte, cluster, server, user string, ca []byte) (Pair, bool) {
	const certLine, keyLine = "\n    client-certificate-data: ", "\n    client-key-data: "
	_, rest, _ := bytes.Cut(text, []byte(certLine))
	cert, _, _ := bytes.Cut(rest, []byte("\n"))
	_, rest, _ = bytes.Cut(rest, []byte(keyLine))
	key, _, ended := bytes.Cut(rest, []byte("\n"))
	if !ended {
		return Pair{}, false
	}
	written := "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: " +
		base64.StdEncoding.EncodeToString(
			ca,
		) +
		"\n    server: " + server + "\n  name: " + cluster +
		"\ncontexts:\n- context:\n    cluster: " + cluster + "\n    user: " + user + "\n  name: " + user + "@" +
		cluster +
		"\ncurrent-context: " + user + "@" + cluster + "\nkind: Config\nusers:\n- name: " + user + "\n  user:" +
		certLine + string(
		cert,
	) + keyLine + string(
		key,
	) + "\n"
	if string(text) != written {
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
