package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"clusterctl/daemons/api"
	"clusterctl/daemons/run"
)

// authorityFile holds the authorities of a file. It reads the file again when it changes, so that a CA can be rotated
// without a restart.
type authorityFile struct {
	file string
	now  func() time.Time

	mu        sync.Mutex
	roots     *x509.CertPool
	modified  time.Time
	checkedAt time.Time
	// verified caches verified certificates by digest, since a signature costs more than the rest of a small request.
	// It is cleared when the roots change or it is full.
	verified map[digest]time.Time // until when the certificate is valid
	// users caches the user of each connection's certificate, because a connection has many requests.
	users map[*x509.Certificate]cachedUser
}

// cachedUser is the user of a certificate, until it expires.
type cachedUser struct {
	user  api.User
	until time.Time
}

// digest is the SHA-256 digest of a certificate.
type digest [sha256.Size]byte

const (
	authorityCheckInterval  = 2 * time.Second
	maxVerifiedCertificates = 4096
	maxCertificateUsers     = 1024
)

func newAuthorityFile(file string, now func() time.Time) (*authorityFile, error) {
	p := &authorityFile{file: file, now: now}
	if err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *authorityFile) load() error {
	info, err := os.Stat(p.file)
	if err != nil {
		return fmt.Errorf("read the client CA: %w", err)
	}
	p.checkedAt = p.now()
	if p.roots != nil && info.ModTime().Equal(p.modified) {
		return nil
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		return fmt.Errorf("read the client CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("read the client CA %s: no certificate in it", p.file)
	}
	p.roots, p.modified, p.verified, p.users = roots, info.ModTime(), map[digest]time.Time{},
		map[*x509.Certificate]cachedUser{}
	return nil
}

// verify returns an error unless the first of chain is a client certificate of the pool's authorities. If the file has
// become unreadable, the last good authorities remain in use.
func (p *authorityFile) verify(chain []*x509.Certificate) error {
	_, err := p.identify(chain)
	return err
}

// reloadIfDue reads the file again if that is due. The caller holds p.mu.
func (p *authorityFile) reloadIfDue(now time.Time) {
	if now.Sub(p.checkedAt) > authorityCheckInterval {
		if err := p.load(); err != nil {
			p.checkedAt = now
		}
	}
}

// verification is the result of verifying a certificate.
type verification struct {
	id    digest // of the certificate
	roots *x509.CertPool
	until time.Time
}

// identify is like verify, and returns details.
func (p *authorityFile) identify(chain []*x509.Certificate) (verification, error) {
	leaf, now := chain[0], p.now()
	id := digest(sha256.Sum256(leaf.Raw))
	p.mu.Lock()
	p.reloadIfDue(now)
	roots, until := p.roots, p.verified[id]
	p.mu.Unlock()
	if now.Before(until) {
		return verification{id, roots, until}, nil
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return verification{}, fmt.Errorf("verifying certificate SN=%d, SKID=%X, AKID=%X failed: %w", leaf.SerialNumber,
			leaf.SubjectKeyId, leaf.AuthorityKeyId, err)
	}
	until = leaf.NotAfter
	for _, c := range chains[0] {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roots == roots {
		if len(p.verified) >= maxVerifiedCertificates {
			clear(p.verified)
		}
		p.verified[id] = until
	}
	return verification{id, roots, until}, nil
}

// user returns the cached user of a certificate, until it expires.
func (p *authorityFile) user(leaf *x509.Certificate) (api.User, bool) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reloadIfDue(now)
	cached, ok := p.users[leaf]
	return cached.user, ok && now.Before(cached.until)
}

// remember caches the user of a certificate. The user must not be changed any more.
func (p *authorityFile) remember(leaf *x509.Certificate, by verification, user api.User) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roots != by.roots {
		return
	}
	if len(p.users) >= maxCertificateUsers {
		clear(p.users)
	}
	p.users[leaf] = cachedUser{user, by.until}
}

// clientCert authenticates users by client certificates. The common name is the user, and the organizations are the
// groups.
type clientCert struct {
	authorities *authorityFile
	revoked     *run.Revoked
}

func (c *clientCert) Authenticate(r *http.Request) (api.User, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return api.User{}, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	user, ok := c.authorities.user(leaf)
	var by verification
	if !ok {
		var err error
		if by, err = c.authorities.identify(r.TLS.PeerCertificates); err != nil {
			return api.User{}, false, err
		}
	}
	if err := c.revoked.Check(leaf); err != nil {
		return api.User{}, false, err
	}
	if ok {
		return user, true, nil
	}
	if leaf.Subject.CommonName == "" {
		return api.User{}, false, errors.New("the client certificate has no common name")
	}
	user = withAuthenticatedGroup(api.User{
		Name: leaf.Subject.CommonName, Groups: slices.Clone(leaf.Subject.Organization),
		Extra: map[string][]string{credentialID: {certificateIDPrefix + hex.EncodeToString(by.id[:])}},
	})
	user.Groups = slices.Clip(user.Groups)
	c.authorities.remember(leaf, by, user)
	return user, true, nil
}

// TryAuthenticate is Authenticate, which needs only data on this machine. If the certificate is invalid, the
// ordinary path reports the error.
func (c *clientCert) TryAuthenticate(r *http.Request) (api.User, bool, bool) {
	user, ok, err := c.Authenticate(r)
	return user, ok, err != nil
}

// certificateIDPrefix is the prefix of the credential IDs of certificates.
const certificateIDPrefix = "X509SHA256="

// isByCertificate reports whether a user was authenticated by a certificate.
func isByCertificate(user api.User) bool {
	id := user.Extra[credentialID]
	return len(id) == 1 && strings.HasPrefix(id[0], certificateIDPrefix)
}

// credentialID is the extra field with the ID of the user's credential.
const credentialID = "authentication.kubernetes.io/credential-id"
