package certs

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig with one cluster, one user and one context,
// credentials embedded.
func Kubeconfig(cluster, server, user string, ca []byte, pair Pair) ([]byte, error) {
	context := user + "@" + cluster
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return text, nil
}
