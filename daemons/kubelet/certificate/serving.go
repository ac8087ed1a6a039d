package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"clusterctl/certs"
	"clusterctl/daemons/kubelet/sleep"
	"clusterctl/kube/kubernetes"
)

// Serving is a serving certificate that the cluster signs. Its files are named as upstream's kubelet names them.
type Serving struct {
	requester certificateRequester
	dir       string
	failures  counter // nil counts nothing

	mu      sync.Mutex
	current *tls.Certificate // nil while there is none
}

const (
	currentServingFile = "kubelet-server-current.pem"
	// signTimeout limits how long one request waits for its approval. Then another is created.
	signTimeout = 15 * time.Minute
	// minServingPause and maxServingPause are the shortest and longest pause between failed attempts.
	minServingPause, maxServingPause = 2 * time.Second, 32 * time.Second
)

// counter counts events.
type counter interface{ Inc() }

// NewServing returns the serving certificate of a node with the given addresses. It reads the current certificate from
// dir if it exists. failures counts failed renewals; nil counts nothing.
func NewServing(
	api kubernetes.Interface, node string, ips []string, dir string, log *slog.Logger, failures counter,
) (*Serving, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the serving certificate: %w", err)
	}
	wanted := x509.CertificateRequest{Subject: nodeSubject(node), DNSNames: []string{node}}
	for _, ip := range ips {
		wanted.IPAddresses = append(wanted.IPAddresses, net.ParseIP(ip))
	}
	s := &Serving{
		dir:      dir,
		failures: failures,
		requester: certificateRequester{api: api, log: log, template: wanted,
			signer: certificatesv1.KubeletServingSignerName,
			usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}},
	}
	path := filepath.Join(dir, currentServingFile)
	pair, err := tls.LoadX509KeyPair(path, path)
	switch {
	case err == nil:
		s.current = &pair
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	return s, nil
}

// Current returns the certificate, nil if there is none or it has expired.
func (s *Serving) Current() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || time.Now().After(s.current.Leaf.NotAfter) {
		return nil
	}
	return s.current
}

// Run requests a certificate with the node's name and addresses, and renews it before it expires, until ctx ends. Each
// request has to be approved.
func (s *Serving) Run(ctx context.Context) {
	wait := minServingPause
	for sleep.For(ctx, time.Until(s.renewAt())) {
		err := s.renew(ctx)
		switch {
		case err == nil:
			wait = minServingPause
			continue
		case ctx.Err() == nil:
			s.requester.log.Warn("cannot renew the serving certificate", "err", err, "retry", wait)
			if s.failures != nil {
				s.failures.Inc()
			}
		}
		if !sleep.For(ctx, wait) {
			return
		}
		wait = min(2*wait, maxServingPause)
	}
}

// renewAt returns when to request the next certificate. That is at once if there is none, or if it lacks a name or an
// address. Otherwise it is after 70 to 90 % of its lifetime, at random, so that the nodes do not request theirs at the
// same time.
func (s *Serving) renewAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || !isCoveredBy(s.current.Leaf, &s.requester.template) {
		return time.Time{}
	}
	life := s.current.Leaf.NotAfter.Sub(s.current.Leaf.NotBefore)
	return s.current.Leaf.NotBefore.Add(time.Duration((0.7 + 0.2*rand.Float64()) * float64(life)))
}

// isCoveredBy reports whether a certificate has the subject, names and addresses of a request.
func isCoveredBy(cert *x509.Certificate, wanted *x509.CertificateRequest) bool {
	missing := func(ip net.IP) bool { return !slices.ContainsFunc(cert.IPAddresses, ip.Equal) }
	lacks := func(existing, want []string) bool {
		return slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(existing, s) })
	}
	return cert.Subject.CommonName == wanted.Subject.CommonName && !slices.ContainsFunc(wanted.IPAddresses, missing) &&
		!lacks(cert.DNSNames, wanted.DNSNames) && !lacks(cert.Subject.Organization, wanted.Subject.Organization)
}

func (s *Serving) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	pair, err := s.requester.sign(ctx)
	if err != nil {
		return err
	}
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return fmt.Errorf("read the signed certificate: %w", err)
	}
	if err := s.write(pair); err != nil {
		return fmt.Errorf("write the serving certificate to %s: %w", s.dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = &loaded
	return nil
}

// write stores a pair in a new file, and then points the link to the current one at it.
func (s *Serving) write(pair certs.Pair) error {
	name := "kubelet-server-" + time.Now().Format("2006-01-02-15-04-05") + ".pem"
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Concat(bytes.TrimRight(pair.Cert, "\n"), []byte("\n"), pair.Key))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	next := filepath.Join(s.dir, "."+currentServingFile)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Join(s.dir, name), next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(s.dir, currentServingFile))
}
