package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// keyFile is a key file of the configuration.
type keyFile struct {
	path   string
	public ssh.PublicKey
	signer ssh.Signer // nil if only the agent can sign with it
}

// authMethods returns the authentication methods and a description of them. Keys are tried in OpenSSH's order: the
// agent's keys that are configured, then its other keys, then those in files. Certificates come before their keys.
func (c *Client) authMethods(t Target, password string, wait func(func() error) error) ([]ssh.AuthMethod,
	string, error) {
	var methods []ssh.AuthMethod
	var tried []string
	if !t.HasNoKeys {
		keys, notes, err := c.readKeys(t, wait)
		if err != nil {
			return nil, "", err
		}
		held := c.agentKeys(t)
		var signers []ssh.Signer
		for _, k := range keys {
			if i := slices.IndexFunc(held,
				func(s ssh.Signer) bool { return isSameKey(s.PublicKey(), k.public) }); i >= 0 {
				signers, tried = append(signers, held[i]), append(tried, filepath.Base(k.path)+" of ssh-agent")
			} else if k.signer == nil {
				tried = append(tried, k.path+" (its private key is neither beside it nor in ssh-agent)")
			}
		}
		if !t.HasOnlyKeys {
			others := 0
			for _, s := range held {
				if !slices.ContainsFunc(keys, func(k keyFile) bool { return isSameKey(s.PublicKey(), k.public) }) {
					signers = append(signers, s)
					others++
				}
			}
			if others > 0 {
				tried = append(tried, fmt.Sprintf("%d keys of ssh-agent", others))
			}
		}
		for _, k := range keys {
			if k.signer != nil &&
				!slices.ContainsFunc(held, func(s ssh.Signer) bool { return isSameKey(s.PublicKey(), k.public) }) {
				signers, tried = append(signers, k.signer), append(tried, filepath.Base(k.path))
			}
		}
		certified, names, err := addCertificates(t, signers)
		if err != nil {
			return nil, "", err
		}
		tried = append(append(names, tried...), notes...)
		if signers = append(certified, signers...); len(signers) > 0 {
			methods = append(methods, ssh.PublicKeys(signers...))
		}
	}
	if password != "" {
		tried = append(tried, "the password")
		methods = append(
			methods,
			ssh.Password(password),
			ssh.KeyboardInteractive(func(_, _ string, questions []string, _ []bool) ([]string, error) {
				return slices.Repeat([]string{password}, len(questions)), nil
			}),
		)
	}
	if len(tried) == 0 {
		tried = []string{"nothing: no key was found in ~/.ssh and no ssh-agent runs"}
	}
	return methods, strings.Join(tried, ", "), nil
}

func isSameKey(a, b ssh.PublicKey) bool {
	return a != nil && b != nil && bytes.Equal(a.Marshal(), b.Marshal())
}

// agentKeys returns the agent's keys.
func (c *Client) agentKeys(t Target) []ssh.Signer {
	if t.AgentSocket == "" {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: agentTimeout}).Dial("unix", t.AgentSocket)
	if err != nil {
		return nil
	}
	c.agents = append(c.agents, conn)
	held, err := agent.NewClient(conn).Signers()
	if err != nil {
		return nil
	}
	return held
}

// readKeys reads the key files. The notes say which files cannot be used, and why.
func (c *Client) readKeys(t Target, wait func(func() error) error) (keys []keyFile, notes []string, err error) {
	for _, path := range t.Keys {
		k, note, err := c.readKey(path, wait)
		switch {
		case err == nil && note != "":
			notes = append(notes, note)
		case err == nil:
			keys = append(keys, k)
		case t.IsExplicit:
			return nil, nil, fmt.Errorf("%w: read the key: %w", ErrLogin, err)
		case !errors.Is(err, os.ErrNotExist):
			notes = append(notes, err.Error())
		}
	}
	return keys, notes, nil
}

func (c *Client) readKey(path string, wait func(func() error) error) (keyFile, string, error) {
	k := keyFile{path: path, public: readPublicKey(path + ".pub")}
	text, err := os.ReadFile(path)
	if err != nil {
		if k.public != nil && errors.Is(err, os.ErrNotExist) {
			return k, "", nil
		}
		return k, "", err
	}
	if public := readPublicKey(path); public != nil {
		k.public = public
		return k, "", nil
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 &&
		int(info.Sys().(*syscall.Stat_t).Uid) == os.Getuid() {
		return k, fmt.Sprintf("%s (others may read it: chmod 600 %s)", path, path), nil
	}
	signer, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		if locked.PublicKey != nil {
			k.public = locked.PublicKey
		}
		if k.public == nil {
			return k, path + " (needs its passphrase and has no .pub beside it: add it to ssh-agent)", nil
		}
		k.signer = &lockedKey{path: path, text: text, public: k.public, askPassphrase: c.passphrase, pauseTimeout: wait}
		if c.passphrase == nil {
			k.signer = nil
		}
	case err != nil:
		return k, "", fmt.Errorf("%s: %w", path, err)
	default:
		k.signer, k.public = signer, signer.PublicKey()
	}
	return k, "", nil
}

// readPublicKey reads a file with one public key or certificate, or returns nil.
func readPublicKey(path string) ssh.PublicKey {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	k, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return nil
	}
	return k
}

// addCertificates returns the signers again with each of their certificates: those that the configuration names, and
// those beside the key files.
func addCertificates(t Target, signers []ssh.Signer) (list []ssh.Signer, names []string, err error) {
	paths := slices.Clone(t.Certificates)
	for _, k := range t.Keys {
		paths = append(paths, strings.TrimSuffix(k, ".pub")+"-cert.pub")
	}
	for i, path := range paths {
		k := readPublicKey(path)
		cert, ok := k.(*ssh.Certificate)
		if !ok {
			if i < len(t.Certificates) {
				names = append(names, path+" (is not a certificate)")
			}
			continue
		}
		for _, s := range signers {
			if !isSameKey(s.PublicKey(), cert.Key) {
				continue
			}
			certified, err := ssh.NewCertSigner(cert, s)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: use the certificate %s: %w", ErrLogin, path, err)
			}
			list, names = append(list, certified), append(names, filepath.Base(path))
		}
	}
	return list, names, nil
}

// lockedKey is a key that asks for its passphrase only when a machine requests a signature with it.
type lockedKey struct {
	path          string
	text          []byte
	public        ssh.PublicKey
	askPassphrase func(path string, try func([]byte) error) error
	pauseTimeout  func(func() error) error // stops the timeout while the user types
}

// lockedError reports that a requested key could not be unlocked.
type lockedError struct {
	path  string
	cause error
}

func (e *lockedError) Error() string { return fmt.Sprintf("unlock %s: %v", e.path, e.cause) }

func (e *lockedError) Unwrap() error { return e.cause }

func (k *lockedKey) PublicKey() ssh.PublicKey { return k.public }

func (k *lockedKey) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	return k.SignWithAlgorithm(rand, data, "")
}

func (k *lockedKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	var signer ssh.Signer
	err := k.pauseTimeout(func() error {
		return k.askPassphrase(k.path, func(passphrase []byte) (err error) {
			signer, err = ssh.ParsePrivateKeyWithPassphrase(k.text, passphrase)
			return err
		})
	})
	if err != nil {
		return nil, &lockedError{k.path, err}
	}
	if s, ok := signer.(ssh.AlgorithmSigner); ok {
		return s.SignWithAlgorithm(rand, data, algorithm)
	}
	return signer.Sign(rand, data)
}
