package step

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/certs"
	"clusterctl/provision/host"
)

// Lifetime reads when a certificate, in a file or a kubeconfig, expires. There is nothing to apply.
type Lifetime struct {
	Path string `json:"path"`
}

// MissingCertificate is the note of Lifetime for a missing file.
const MissingCertificate = "missing"

// Label names the file.
func (s *Lifetime) Label() string { return "lifetime of " + s.Path }

// Check returns a Change whose note is the expiry in RFC 3339, or the reason why it is unknown.
func (s *Lifetime) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	c := Change{Action: Update, Kind: "certificate", Name: s.Path, Note: MissingCertificate}
	text, err := h.ReadFile(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return Change{}, err
	}
	if strings.HasSuffix(s.Path, ".conf") {
		if text, err = clientCertificate(text); err != nil {
			c.Note = "cannot be read: " + err.Error()
			return c, nil
		}
	}
	cert, err := certs.ParseCert(text)
	if err != nil {
		c.Note = "cannot be read: " + err.Error()
		return c, nil
	}
	c.Note = cert.NotAfter.UTC().Format(time.RFC3339)
	return c, nil
}

// Apply does nothing.
func (s *Lifetime) Apply(context.Context, host.Host, *Walk) error { return nil }

func clientCertificate(kubeconfig []byte) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok || config.AuthInfos[current.AuthInfo] == nil {
		return nil, errors.New("it has no current user")
	}
	return config.AuthInfos[current.AuthInfo].ClientCertificateData, nil
}
