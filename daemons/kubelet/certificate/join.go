// Package certificate requests the certificates of a node from the cluster: the client certificate of its kubeconfig
// and the serving certificate of the kubelet's server.
package certificate

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"clusterctl/certs"
	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/kube/kubernetes"
)

// Ensure ensures that the node's kubeconfig has a client certificate that is valid for some time. If there is none, or
// it has expired, Ensure requests one with the bootstrap kubeconfig, which has a token. If it is due for renewal,
// Ensure requests one with the kubeconfig itself. It waits until the request is approved and signed.
func Ensure(ctx context.Context, cfg config.Kubelet, log *slog.Logger) error {
	due, end, err := Lifetime(cfg.Kubeconfig)
	now := time.Now()
	if err != nil && cfg.BootstrapKubeconfig == "" || err == nil && now.Before(due) {
		return nil // the user of the kubeconfig reports what is wrong with it
	}
	with := cfg.Kubeconfig
	if err != nil || !now.Before(end) {
		if with = cfg.BootstrapKubeconfig; with == "" {
			return fmt.Errorf("the client certificate in %s ended on %s, and there is no --bootstrap-kubeconfig to "+
				"ask for another with", cfg.Kubeconfig, end.UTC().Format(time.RFC3339))
		}
	}
	node, err := machine.NodeName(cfg.HostnameOverride)
	if err != nil {
		return err
	}
	api, err := client.Config(client.Options{Kubeconfig: with, APIServers: cfg.APIServers, UserAgent: "kubelet"})
	if err != nil {
		return err
	}
	asking, err := kubernetes.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("set up the client that asks for the node's certificate: %w", err)
	}
	pair, err := Request(ctx, asking, node, log)
	if err != nil {
		return fmt.Errorf("ask for the client certificate of node %s with %s: %w", node, with, err)
	}
	return writeCredentials(cfg.Kubeconfig, with, "system:node:"+node, pair)
}

// Request creates a key for a node and requests a client certificate for it. It returns both when the
// cluster has signed.
func Request(ctx context.Context, api kubernetes.Interface, node string,
	log *slog.Logger) (certs.Pair, error) {
	return certificateRequester{api: api, log: log, signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		template: x509.CertificateRequest{Subject: nodeSubject(node)},
		usages: []certificatesv1.KeyUsage{
			certificatesv1.UsageDigitalSignature,
			certificatesv1.UsageClientAuth,
		}}.sign(ctx)
}

// nodeSubject returns the subject of a node's certificates.
func nodeSubject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// Lifetime returns when the client certificate in a kubeconfig is due for renewal, and when it expires.
func Lifetime(kubeconfig string) (due, end time.Time, err error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return due, end, err
	}
	c, err := clientcmd.Load(text)
	if err != nil {
		return due, end, err
	}
	current := c.Contexts[c.CurrentContext]
	if current == nil || c.AuthInfos[current.AuthInfo] == nil {
		return due, end, errors.New("it has no current user")
	}
	cert, err := certs.ParseCert(c.AuthInfos[current.AuthInfo].ClientCertificateData)
	if err != nil {
		return due, end, err
	}
	return renewalTime(cert), cert.NotAfter, nil
}

// renewalTime returns when a certificate is due for renewal, at four fifths of its lifetime.
func renewalTime(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) * 4 / 5)
}

// writeCredentials atomically replaces the kubeconfig at path. It takes the cluster from the kubeconfig at from, and
// the user's credentials from pair.
func writeCredentials(path, from, user string, pair certs.Pair) error {
	given, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	current := given.Contexts[given.CurrentContext]
	if current == nil || given.Clusters[current.Cluster] == nil {
		return fmt.Errorf("%s has no current cluster", from)
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{current.Cluster: given.Clusters[current.Cluster]},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key},
		},
		Contexts:       map[string]*clientcmdapi.Context{"node": {Cluster: current.Cluster, AuthInfo: user}},
		CurrentContext: "node",
	})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write the node's kubeconfig: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if goneErr := os.Remove(f.Name()); !errors.Is(goneErr, fs.ErrNotExist) {
			err = errors.Join(err, goneErr)
		}
		return fmt.Errorf("write the node's kubeconfig: %w", err)
	}
	return nil
}
