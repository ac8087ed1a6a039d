package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/provision/host"
)

// Certificate is a leaf certificate at Path.crt with its key at Path.key. It is issued again if it differs from the
// request or is due for renewal. The run generates the key, sends it, and stores it nowhere else.
type Certificate struct {
	Path    string        `json:"path"`
	CA      string        `json:"ca"`              // name of the authority
	CACert  []byte        `json:"caCert"`          // its certificate, followed by other trusted ones
	Chain   []byte        `json:"chain,omitempty"` // intermediate certificates that follow the leaf
	Request certs.Request `json:"request"`
	Revoked []string      `json:"revoked,omitempty"` // serial numbers in hex of revoked certificates
	Since   time.Time     `json:"since,omitzero"`    // certificates issued before this time are renewed
	Pair    *certs.Pair   `json:"pair,omitempty"`    // set before the step is applied
}

// Label names the certificate.
func (s *Certificate) Label() string { return "certificate " + s.Path + ".crt" }

// CertificateRequest returns the authority and the request.
func (s *Certificate) CertificateRequest() (string, certs.Request) { return s.CA, s.Request }

// SetPair sets the issued certificate.
func (s *Certificate) SetPair(p certs.Pair) { s.Pair = &p }

// Check reads the certificate and its key.
func (s *Certificate) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	c := Change{Kind: "file", Name: s.Path + ".crt"}
	cert, err := h.ReadFile(s.Path + ".crt")
	if errors.Is(err, fs.ErrNotExist) {
		c.Action, c.IsBroken = Create, true
		w.Touch(c.Name)
		return c, nil
	}
	if err != nil {
		return Change{}, err
	}
	key, err := h.ReadFile(s.Path + ".key")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Change{}, err
	}
	pair := certs.Pair{Cert: cert, Key: key}
	if reason := reissueReason(pair, s.CACert, s.Chain, s.Request, s.Revoked, s.Since); reason != "" {
		w.Touch(c.Name)
		c.Action, c.Note, c.IsBroken = Update, reason, isRejected(pair, s.CACert, s.Revoked)
		return c, nil
	}
	info, err := h.Stat(s.Path + ".key")
	if err != nil {
		return Change{}, err
	}
	if note := permissions(info, 0o600); note != "" {
		c.Action, c.Name, c.Note = Update, s.Path+".key", note
		return c, nil
	}
	return Change{}, nil
}

// Apply writes the key first. A daemon that reads in between sees a mismatch and retries.
func (s *Certificate) Apply(_ context.Context, h host.Host, _ *Walk) error {
	if s.Pair == nil {
		return errors.New("no certificate was issued for it: it changed after the plan, run again")
	}
	if err := h.WriteFile(s.Path+".key", bytes.NewReader(s.Pair.Key), 0o600, 0, 0); err != nil {
		return err
	}
	return h.WriteFile(s.Path+".crt", bytes.NewReader(s.Pair.Cert), 0o600, 0, 0)
}

// Kubeconfig is a kubeconfig with a client certificate.
type Kubeconfig struct {
	Path    string        `json:"path"`
	Cluster string        `json:"cluster"`
	Server  string        `json:"server"`
	CA      string        `json:"ca"`
	CACert  []byte        `json:"caCert"`
	Chain   []byte        `json:"chain,omitempty"`
	Request certs.Request `json:"request"`
	Revoked []string      `json:"revoked,omitempty"`
	Since   time.Time     `json:"since,omitzero"`
	Pair    *certs.Pair   `json:"pair,omitempty"`
}

// Label names the file.
func (s *Kubeconfig) Label() string { return "kubeconfig " + s.Path }

// CertificateRequest returns the authority and the request.
func (s *Kubeconfig) CertificateRequest() (string, certs.Request) { return s.CA, s.Request }

// SetPair sets the issued certificate.
func (s *Kubeconfig) SetPair(p certs.Pair) { s.Pair = &p }

// Check checks the kubeconfig and its certificate.
func (s *Kubeconfig) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	c := Change{Kind: "file", Name: s.Path}
	text, err := h.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		c.Action, c.IsBroken = Create, true
		w.Touch(s.Path)
		return c, nil
	}
	if err != nil {
		return Change{}, err
	}
	if c.Note = s.differs(text); c.Note != "" {
		c.Action, c.IsBroken = Update, s.isRejected(text)
		w.Touch(s.Path)
		return c, nil
	}
	info, err := h.Stat(s.Path)
	if err != nil {
		return Change{}, err
	}
	if c.Note = permissions(info, 0o600); c.Note != "" {
		c.Action = Update
		return c, nil
	}
	return Change{}, nil
}

func (s *Kubeconfig) differs(text []byte) string {
	if pair, ours := certs.ParseKubeconfig(text, s.Cluster, s.Server, s.Request.CommonName, s.CACert); ours {
		return reissueReason(pair, s.CACert, s.Chain, s.Request, s.Revoked, s.Since)
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return "cannot be read"
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return "has no current context"
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	switch {
	case cluster == nil || user == nil:
		return "has no cluster or no user"
	case cluster.Server != s.Server:
		return fmt.Sprintf("server %s, should be %s", cluster.Server, s.Server)
	case !bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(s.CACert)):
		return "another CA"
	}
	pair := certs.Pair{Cert: user.ClientCertificateData, Key: user.ClientKeyData}
	if reason := reissueReason(pair, s.CACert, s.Chain, s.Request, s.Revoked, s.Since); reason != "" {
		return reason
	}
	if written, err := certs.Kubeconfig(s.Cluster, s.Server, s.Request.CommonName, s.CACert, pair); err != nil ||
		!bytes.Equal(text, written) {
		return "was changed by others"
	}
	return ""
}

// isRejected reports whether the client certificate in a kubeconfig is no longer accepted.
func (s *Kubeconfig) isRejected(text []byte) bool {
	config, err := clientcmd.Load(text)
	if err != nil {
		return true
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok || config.AuthInfos[current.AuthInfo] == nil {
		return true
	}
	user := config.AuthInfos[current.AuthInfo]
	return isRejected(certs.Pair{Cert: user.ClientCertificateData, Key: user.ClientKeyData}, s.CACert, s.Revoked)
}

// isRejected reports whether a certificate is no longer accepted: it is invalid, expired or revoked.
func isRejected(p certs.Pair, ca []byte, revoked []string) bool {
	if certs.CheckUsable(p, ca, time.Now()) != nil {
		return true
	}
	cert, err := certs.ParseCert(p.Cert)
	return err != nil || slices.Contains(revoked, cert.SerialNumber.Text(16))
}

// reissueReason returns why a certificate must be issued again, or "".
func reissueReason(p certs.Pair, ca, chain []byte, r certs.Request, revoked []string, since time.Time) string {
	cert, reason := certs.Inspect(p, ca, r, time.Now())
	switch {
	case reason != "":
		return reason
	case slices.Contains(revoked, cert.SerialNumber.Text(16)):
		return "was revoked"
	case certs.IssuedBefore(cert, since):
		return "its renewal is asked for"
	}
	if !bytes.Equal(certs.ChainOf(p.Cert), chain) {
		return "comes with another chain"
	}
	return ""
}

// Apply writes the kubeconfig.
func (s *Kubeconfig) Apply(_ context.Context, h host.Host, _ *Walk) error {
	if s.Pair == nil {
		return errors.New("no certificate was issued for it: it changed after the plan, run again")
	}
	text, err := certs.Kubeconfig(s.Cluster, s.Server, s.Request.CommonName, s.CACert, *s.Pair)
	if err != nil {
		return err
	}
	return h.WriteFile(s.Path, bytes.NewReader(text), 0o600, 0, 0)
}
