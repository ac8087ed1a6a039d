package fault

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"clusterctl/certs"
	"clusterctl/tests/lab/machines"
)

// shortLifetime is the remaining lifetime of a certificate that is to expire. It is long enough for the daemon to load
// it.
const shortLifetime = 10 * time.Second

const pkiDir = "/etc/kubernetes/pki/"

// Certificates are the certificates that can expire, by daemon.
var Certificates = map[string]string{"kube-apiserver": "apiserver", "kubelet": "kubelet",
	"kube-scheduler": "kube-scheduler", "kube-controller-manager": "kube-controller-manager",
	"metrics-server": "metrics-server", "etcd": "etcd/peer"}

// expireCertificate gives a daemon a certificate that expires soon, and returns a function that restores the former
// one.
func expireCertificate(
	ctx context.Context,
	lab *machines.Lab,
	m *machines.Machine,
	unit string,
) (undo func(context.Context) error, err error) {
	path, ok := Certificates[unit]
	if !ok {
		return nil, fmt.Errorf("no certificate of %s is known", unit)
	}
	path = pkiDir + path + ".crt"
	folder := path[:strings.LastIndexByte(path, '/')+1]
	former, err := m.Run(ctx, "cat "+path)
	if err != nil {
		return nil, err
	}
	ca, err := readAuthority(ctx, lab, folder)
	if err != nil {
		return nil, err
	}
	leaf, err := certs.ParseCert([]byte(former))
	if err != nil {
		return nil, err
	}
	hosts := append([]string{}, leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	der, err := certs.Sign(
		ca,
		certs.Request{CommonName: leaf.Subject.CommonName, Organizations: leaf.Subject.Organization,
			Hosts: hosts, Usages: append([]x509.ExtKeyUsage{}, leaf.ExtKeyUsage...), Lifetime: shortLifetime},
		leaf.PublicKey,
		time.Now(),
	)
	if err != nil {
		return nil, err
	}
	put := func(ctx context.Context, text string) error {
		cmd := m.SSH(ctx, "root", fmt.Sprintf("cp -p %[1]s %[1]s.new && cat > %[1]s.new && mv %[1]s.new %[1]s", path))
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("write %s of %s: %w: %s", path, m.Name, err, out)
		}
		return nil
	}
	back := func(ctx context.Context) error { return put(ctx, former) }
	return back, put(ctx, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// readAuthority reads the certificate authority in a folder from a machine that has its key.
func readAuthority(ctx context.Context, lab *machines.Lab, folder string) (certs.Pair, error) {
	var errs []error
	for _, m := range lab.Machines {
		if !m.IsRunning() {
			continue
		}
		key, err := m.Run(ctx, "cat "+folder+"ca.key")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		cert, err := m.Run(ctx, "cat "+folder+"ca.crt")
		return certs.Pair{Cert: []byte(cert), Key: []byte(key)}, err
	}
	return certs.Pair{}, errors.Join(append(errs, errors.New("no machine has the authority's key"))...)
}
