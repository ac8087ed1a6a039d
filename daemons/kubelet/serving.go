package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
)

// serving returns how the kubelet's server finds its certificate: in the file that its configuration names, which is read anew when it changes; by
// asking the cluster for it; or made by itself.
func (k *Kubelet) serving(ctx context.Context) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	switch {
	case k.file.ServerTLSBootstrap:
		asking, err := AskServing(ctx, k.client, k.name, k.ips, filepath.Join(k.cfg.RootDir, "pki"), k.metrics.serverErrors)
		if err != nil {
			return nil, err
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if current := asking.Current(); current != nil {
				return current, nil
			}
			return nil, errUnsigned
		}, nil
	case k.file.TLSCertFile != "":
		file := &keyPair{cert: k.file.TLSCertFile, key: k.file.TLSPrivateKeyFile}
		_, err := file.get(nil)
		return file.get, err
	}
	own := &keyPair{}
	return own.get, own.selfSigned(k.name, k.ips)
}

// errUnsigned is that nobody has approved of the serving certificate yet.
var errUnsigned = errors.New("serverTLSBootstrap: no serving certificate yet: its request (kubectl get csr) waits to be approved")

// AskServing keeps a serving certificate of the cluster's in a directory: it asks for one that has the node's name and addresses, and for the next one
// before that ends or when the addresses are others, until ctx ends. Somebody has to approve of each. failures counts those that could not be
// renewed; nil: nothing does.
func AskServing(ctx context.Context, api kubernetes.Interface, node string, ips []string, dir string, failures certificate.Counter) (certificate.Manager, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the serving certificate: %w", err)
	}
	store, err := certificate.NewFileStore("kubelet-server", dir, dir, "", "")
	if err != nil {
		return nil, fmt.Errorf("keep the serving certificate in %s: %w", dir, err)
	}
	wanted := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, DNSNames: []string{node},
	}
	for _, ip := range ips {
		wanted.IPAddresses = append(wanted.IPAddresses, net.ParseIP(ip))
	}
	asking, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return api, nil },
		GetTemplate: func() *x509.CertificateRequest { return wanted },
		SignerName:  certificatesv1.KubeletServingSignerName, GetUsages: certificate.DefaultKubeletServingGetUsages,
		CertificateStore: store, Name: "serving certificate", Ctx: &ctx, CertificateRenewFailure: failures,
	})
	if err != nil {
		return nil, fmt.Errorf("ask for the serving certificate: %w", err)
	}
	asking.Start()
	return asking, nil
}
