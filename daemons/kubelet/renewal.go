package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"clusterctl/daemons/kubelet/certificate"
	"clusterctl/daemons/kubelet/sleep"
)

// awaitRenewal waits until the client certificate is due for renewal and returns errCertificateDue.
func awaitRenewal(ctx context.Context, kubeconfig string) error {
	due, _, err := certificate.Lifetime(kubeconfig)
	if err != nil {
		return fmt.Errorf("rotateCertificates: read the client certificate in %s: %w", kubeconfig, err)
	}
	if !sleep.For(ctx, time.Until(due)) {
		return nil
	}
	return errCertificateDue
}

// errCertificateDue stops the kubelet so that it is restarted. It renews its certificate at the start, and pods keep
// running meanwhile.
var errCertificateDue = errors.New(
	"the node's client certificate is due: restart the kubelet, which renews it at its start")

// newServingCertificate returns the source of the server's certificate. That is the configured file, which is reloaded
// when it changes; the cluster, which signs the certificate while keep runs; or a self-signed certificate. keep is nil
// if nothing has to run.
func (k *Kubelet) newServingCertificate() (get func(*tls.ClientHelloInfo) (*tls.Certificate, error),
	keep func(context.Context), err error) {
	switch {
	case k.file.ServerTLSBootstrap:
		asking, err := certificate.NewServing(k.client, k.name, k.ips, filepath.Join(k.cfg.RootDir, "pki"), k.env.Log,
			k.metrics.ServerErrors)
		if err != nil {
			return nil, nil, err
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if current := asking.Current(); current != nil {
				return current, nil
			}
			return nil, errNoServingCertificate
		}, asking.Run, nil
	case k.file.TLSCertFile != "":
		file := &certificate.KeyPair{Cert: k.file.TLSCertFile, Key: k.file.TLSPrivateKeyFile}
		_, err := file.Get(nil)
		return file.Get, nil, err
	}
	own, err := certificate.NewSelfSigned(k.name, k.ips)
	if err != nil {
		return nil, nil, err
	}
	return own.Get, nil, nil
}

// errNoServingCertificate is the error of handshakes before the first serving certificate is approved and signed.
var errNoServingCertificate = errors.New(
	"serverTLSBootstrap: no serving certificate yet: its request (kubectl get csr) waits to be approved")
