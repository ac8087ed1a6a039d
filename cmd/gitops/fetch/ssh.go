package fetch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/net/proxy"
)

const dialTimeout = 15 * time.Second

// sshSession speaks the protocol over ssh.
type sshSession struct {
	client *ssh.Client
	run    *ssh.Session
	in     io.WriteCloser
	out    io.Reader
	stop   func() bool // stops the watch over the context
}

// dialSSH connects to a server and starts git-upload-pack there. The server's key must be in known_hosts.
func dialSSH(ctx context.Context, direct dialer, at *url.URL, proxyURL string,
	credentials map[string][]byte) (*sshSession, error) {
	address := at.Host
	if at.Port() == "" {
		address = net.JoinHostPort(at.Hostname(), "22")
	}
	config, err := sshConfig(at.User.Username(), address, credentials)
	if err != nil {
		return nil, err
	}
	conn, err := dialThrough(ctx, direct, proxyURL, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	fail := func(attempt string, err error) (*sshSession, error) {
		stop()
		_ = conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	wire, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		return fail("connect to "+address, describeHostKey(err))
	}
	s := &sshSession{client: ssh.NewClient(wire, channels, requests), stop: stop}
	if s.run, err = s.client.NewSession(); err != nil {
		return fail("start a session", err)
	}
	if s.in, err = s.run.StdinPipe(); err != nil {
		return fail("start a session", err)
	}
	out, err := s.run.StdoutPipe()
	if err != nil {
		return fail("start a session", err)
	}
	s.out = bufio.NewReader(out)
	if err := s.run.Start(service + " " + quote(at.Path)); err != nil {
		return fail("start "+service, err)
	}
	return s, nil
}

// quote quotes a path for the shell of the server.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// sshConfig returns the client's configuration.
func sshConfig(user, address string, credentials map[string][]byte) (*ssh.ClientConfig, error) {
	if user == "" {
		user = "git"
	}
	identity, knownHosts := credentials[keyIdentity], credentials[keyKnownHosts]
	switch {
	case identity == nil:
		return nil, permanent("the Secret has no %s, the private key for ssh; see spec.secret", keyIdentity)
	case knownHosts == nil:
		return nil, permanent("the Secret has no %s; without it the server cannot be identified", keyKnownHosts)
	}
	var signer ssh.Signer
	var err error
	if passphrase := credentials[keyPassphrase]; passphrase != nil {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(identity, passphrase)
	} else {
		signer, err = ssh.ParsePrivateKey(identity)
	}
	if err != nil {
		return nil, fmt.Errorf("the Secret's %s: %w", keyIdentity, err)
	}
	check, algorithms, err := hostKeys(knownHosts, address)
	if err != nil {
		return nil, err
	}
	return &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: check,
		HostKeyAlgorithms: algorithms, Timeout: dialTimeout, ClientVersion: "SSH-2.0-clusterctl"}, nil
}

// hostKeys returns the check of a server's key, and the algorithms of the keys that known_hosts has for the server.
func hostKeys(knownHosts []byte, address string) (ssh.HostKeyCallback, []string, error) {
	dir, err := os.MkdirTemp("", "known-hosts-*") // the library reads files only
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "known_hosts")
	if err := os.WriteFile(path, knownHosts, 0o600); err != nil {
		return nil, nil, err
	}
	check, err := knownhosts.New(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the Secret's %s: %s", keyKnownHosts, strings.ReplaceAll(err.Error(), path, "line"))
	}
	var mismatch *knownhosts.KeyError
	if !errors.As(check(address, &net.TCPAddr{IP: net.IPv4zero}, noKey{}), &mismatch) || len(mismatch.Want) == 0 {
		return nil, nil, permanent("the Secret's %s has no key of %s", keyKnownHosts, address)
	}
	var algorithms []string
	for _, k := range mismatch.Want {
		list := []string{k.Key.Type()}
		if k.Key.Type() == ssh.KeyAlgoRSA {
			list = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, a := range list {
			if !slices.Contains(algorithms, a) {
				algorithms = append(algorithms, a)
			}
		}
	}
	return check, algorithms, nil
}

// noKey is a key that no server has. It makes the library return the keys that it knows.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return []byte("none") }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

// describeHostKey explains that a server has another key than known_hosts says.
func describeHostKey(err error) error {
	var mismatch *knownhosts.KeyError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("the server has another key than the Secret's %s says; either it was replaced, or another "+
			"machine answers in its place: %w", keyKnownHosts, err)
	}
	return err
}

// dialThrough connects directly or through a proxy.
func dialThrough(ctx context.Context, direct dialer, proxyURL, address string) (net.Conn, error) {
	if proxyURL == "" {
		return direct.DialContext(ctx, "tcp", address)
	}
	u, err := url.Parse(proxyURL)
	if err != nil {
		return nil, permanent("spec.proxy: %w", err)
	}
	switch u.Scheme {
	case "socks5":
		through, err := proxy.SOCKS5("tcp", u.Host, nil, direct)
		if err != nil {
			return nil, err
		}
		dialer, ok := through.(proxy.ContextDialer)
		if !ok {
			return nil, errors.New("the SOCKS proxy cannot be used")
		}
		return dialer.DialContext(ctx, "tcp", address)
	case "http":
		return connectHTTP(ctx, direct, u.Host, address)
	}
	return nil, permanent("spec.proxy: ssh goes through http and socks5 proxies, not through %s", u.Scheme)
}

// connectHTTP asks an HTTP proxy to connect.
func connectHTTP(ctx context.Context, direct dialer, at, address string) (net.Conn, error) {
	conn, err := direct.DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("connect to the proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if err := r.Write(conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	buffer := bufio.NewReader(conn)
	answer, err := http.ReadResponse(buffer, r)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", answer.Status)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect through the proxy: %w", err)
	}
	return bufferedConn{conn, buffer}, nil
}

// bufferedConn is a connection of which some bytes were read into a buffer.
type bufferedConn struct {
	net.Conn
	buffer *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.buffer.Read(p) }

// close ends the session and the connection.
func (s *sshSession) close() {
	_ = s.run.Close()
	_ = s.client.Close()
	s.stop()
}

// advertise implements session.
func (s *sshSession) advertise(ctx context.Context) (*packp.AdvRefs, error) {
	adv, err := decodeReferences(s.out)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && strings.Contains(err.Error(), "empty input") {
		return nil, errors.New("the server has no such repository, or does not show it with this key")
	}
	return adv, err
}

// upload implements session.
func (s *sshSession) upload(_ context.Context, request *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := encodeRequest(s.in, request); err != nil {
		return nil, fmt.Errorf("request the pack: %w", err)
	}
	return decodeResponse(io.NopCloser(s.out), request)
}
