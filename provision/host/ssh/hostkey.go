package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// ErrHostKey reports that a machine did not present its known host key.
var ErrHostKey = errors.New("host key")

// hostKeyChecker checks host keys and host certificates against known_hosts files. If configured, it adds keys of
// unknown hosts to them. It never accepts a changed or revoked key.
type hostKeyChecker struct {
	target     Target
	acceptsNew bool
}

// noAddress stands for the remote address, so that hosts are looked up by name only.
var noAddress = &net.TCPAddr{}

// knownHostsMu serializes access to known_hosts files, because several machines may be added at once.
var knownHostsMu sync.Mutex

// lookupName returns the name and port by which a host is looked up.
func (k hostKeyChecker) lookupName() string {
	if k.target.HostKeyAlias != "" {
		return net.JoinHostPort(k.target.HostKeyAlias, "22")
	}
	return net.JoinHostPort(k.target.Host, strconv.Itoa(k.target.Port))
}

func (k hostKeyChecker) presentFiles() (present []string) {
	for _, f := range slices.Concat(k.target.KnownHosts, k.target.GlobalKnownHosts) {
		if info, err := os.Stat(f); err == nil && !info.IsDir() {
			present = append(present, f)
		}
	}
	return present
}

func (k hostKeyChecker) hostKeyCallback() (ssh.HostKeyCallback, error) {
	knownHostsMu.Lock()
	defer knownHostsMu.Unlock()
	check, err := knownhosts.New(k.presentFiles()...)
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	return check, nil
}

func (k hostKeyChecker) check(key ssh.PublicKey) error {
	check, err := k.hostKeyCallback()
	if err != nil {
		return err
	}
	hostname := k.lookupName()
	shown := key
	cert, certified := key.(*ssh.Certificate)
	if certified {
		shown = cert.Key
	}
	if err := k.checkRevoked(check, hostname, key); err != nil {
		return err
	}
	err = check(hostname, noAddress, key)
	if certified && err == nil && k.target.CASignatures.value != "" {
		list, wrong := k.target.CASignatures.selectFrom(ssh.SupportedAlgorithms().PublicKeyAuths,
			ssh.SupportedAlgorithms().PublicKeyAuths)
		if wrong != nil {
			return wrong
		}
		if !slices.Contains(list, cert.Signature.Format) {
			return fmt.Errorf("%w of %s: its certificate is signed with %s, which %s leaves out", ErrHostKey, hostname,
				cert.Signature.Format, k.target.CASignatures.position)
		}
	}
	if certified && err != nil {
		if isListedAuthority(check, hostname, cert.SignatureKey, k) {
			return fmt.Errorf("%w of %s: its certificate is not good: %w. It is key ID %q for %s", ErrHostKey, hostname,
				err, cert.KeyId, strings.Join(cert.ValidPrincipals, ", "))
		}
		// No authority is known for the host. As in OpenSSH, the key itself is checked then.
		err = check(hostname, noAddress, shown)
	}
	var problem *knownhosts.KeyError
	if errors.As(err, &problem) && len(problem.Want) == 0 && k.target.HostKeyAlias == "" && k.target.Port != 22 {
		// An entry without a port also applies to the host.
		if plain := check(net.JoinHostPort(k.target.Host, "22"), noAddress, key); plain == nil {
			return nil
		}
	}
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &problem):
		return fmt.Errorf("%w of %s: %w", ErrHostKey, hostname, err)
	case len(problem.Want) > 0:
		w := problem.Want[0]
		return fmt.Errorf("%w of %s has changed: it is now %s %s, and %s line %d has another. Either the machine was "+
			"reinstalled, or another machine intercepts the connection. If the change is expected, remove the old "+
			"key with: ssh-keygen -R '%s'",
			ErrHostKey, hostname, shown.Type(), ssh.FingerprintSHA256(shown), w.Filename, w.Line,
			knownhosts.Normalize(hostname))
	case !k.acceptsNew && (k.target.StrictHostKeys == "yes" || k.target.StrictHostKeys == "ask"):
		return fmt.Errorf("%w of %s is not known: it is %s %s. Compare it with the machine's own, then either log in "+
			"once with ssh or run again with -accept-new-host-keys", ErrHostKey, hostname, shown.Type(),
			ssh.FingerprintSHA256(shown))
	}
	return k.addHost(hostname, shown)
}

// checkRevoked returns an error if the key, or the key that signed it, is revoked in known_hosts or in the file of
// RevokedHostKeys.
func (k hostKeyChecker) checkRevoked(check ssh.HostKeyCallback, hostname string, key ssh.PublicKey) error {
	keys := []ssh.PublicKey{key}
	if cert, ok := key.(*ssh.Certificate); ok {
		keys = []ssh.PublicKey{cert.Key, cert.SignatureKey}
	}
	var listed [][]byte
	if k.target.RevokedKeys != "" {
		text, err := os.ReadFile(k.target.RevokedKeys)
		if err != nil {
			return fmt.Errorf("%w of %s: read RevokedHostKeys, without which no machine is trusted: %w", ErrHostKey,
				hostname, err)
		}
		if bytes.HasPrefix(text, []byte("SSHKRL")) {
			return fmt.Errorf("%w of %s: %s is a KRL, which clusterctl does not read: list the revoked public "+
				"keys in it, one a line", ErrHostKey, hostname, k.target.RevokedKeys)
		}
		for len(bytes.TrimSpace(text)) > 0 {
			var revoked ssh.PublicKey
			if revoked, _, _, text, err = ssh.ParseAuthorizedKey(text); err != nil {
				return fmt.Errorf("%w of %s: read %s: %w", ErrHostKey, hostname, k.target.RevokedKeys, err)
			}
			listed = append(listed, revoked.Marshal())
		}
	}
	for _, one := range keys {
		var revoked *knownhosts.RevokedError
		if errors.As(check(hostname, noAddress, one), &revoked) {
			return fmt.Errorf("%w of %s is revoked: %s line %d says so of %s %s", ErrHostKey, hostname,
				revoked.Revoked.Filename, revoked.Revoked.Line, one.Type(), ssh.FingerprintSHA256(one))
		}
		for _, blob := range listed {
			if bytes.Equal(blob, one.Marshal()) {
				return fmt.Errorf("%w of %s is revoked: %s has %s %s", ErrHostKey, hostname, k.target.RevokedKeys,
					one.Type(), ssh.FingerprintSHA256(one))
			}
		}
	}
	return nil
}

// isListedAuthority reports whether known_hosts lists a key as an authority for the host.
func isListedAuthority(check ssh.HostKeyCallback, hostname string, key ssh.PublicKey, k hostKeyChecker) bool {
	return slices.ContainsFunc(k.listedKeys(check, hostname),
		func(w knownhosts.KnownKey) bool { return isSameKey(w.Key, key) && isAuthority(w) })
}

// listedKeys returns the keys that known_hosts lists for a host.
func (k hostKeyChecker) listedKeys(check ssh.HostKeyCallback, hostname string) []knownhosts.KnownKey {
	var problem *knownhosts.KeyError
	if errors.As(check(hostname, noAddress, unknownKey{}), &problem) {
		return problem.Want
	}
	return nil
}

// isAuthority reports whether a known key's line begins with @cert-authority.
func isAuthority(w knownhosts.KnownKey) bool {
	text, err := os.ReadFile(w.Filename)
	if err != nil {
		return false
	}
	lines := bytes.Split(text, []byte("\n"))
	return w.Line <= len(lines) && bytes.HasPrefix(bytes.TrimSpace(lines[w.Line-1]), []byte("@cert-authority"))
}

// unknownKey is a key that no host has. The error of checking it lists the host's known keys.
type unknownKey struct{}

func (unknownKey) Type() string                        { return "nobody" }
func (unknownKey) Marshal() []byte                     { return []byte("nobody") }
func (unknownKey) Verify([]byte, *ssh.Signature) error { return errors.New("nobody signs nothing") }

func (k hostKeyChecker) addHost(hostname string, key ssh.PublicKey) error {
	knownHostsMu.Lock()
	defer knownHostsMu.Unlock()
	if len(k.target.KnownHosts) == 0 {
		return nil // UserKnownHostsFile is none
	}
	path := k.target.KnownHosts[0]
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write down the key of %s: %w", hostname, err)
	}
	name := knownhosts.Normalize(hostname)
	if k.target.HashesHosts {
		name = knownhosts.HashHostname(name)
	}
	_, err = fmt.Fprintf(f, "%s %s", name, ssh.MarshalAuthorizedKey(key))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// hostKeyAlgorithms returns the host key algorithms to offer. Those of the known keys come first, so that a host with
// several keys presents a known one.
func (k hostKeyChecker) hostKeyAlgorithms() ([]string, error) {
	supported := ssh.SupportedAlgorithms().HostKeys
	defaults, err := k.target.HostKeys.selectFrom(supported,
		append(slices.Clone(supported), ssh.InsecureAlgorithms().HostKeys...))
	if err != nil ||
		k.target.HostKeys.value != "" && !strings.HasPrefix(k.target.HostKeys.value, "-") &&
			!strings.HasPrefix(k.target.HostKeys.value, "+") {
		return defaults, err
	}
	check, err := k.hostKeyCallback()
	if err != nil {
		return nil, err
	}
	wanted := k.listedKeys(check, k.lookupName())
	if len(wanted) == 0 && k.target.HostKeyAlias == "" && k.target.Port != 22 {
		wanted = k.listedKeys(check, net.JoinHostPort(k.target.Host, "22"))
	}
	first := map[string]bool{}
	for _, w := range wanted {
		if isAuthority(w) {
			for _, a := range supported {
				first[a] = first[a] || strings.Contains(a, "-cert-")
			}
		} else if w.Key.Type() == ssh.KeyAlgoRSA {
			first[ssh.KeyAlgoRSASHA512], first[ssh.KeyAlgoRSASHA256] = true, true
		} else {
			first[w.Key.Type()] = true
		}
	}
	ordered := slices.DeleteFunc(slices.Clone(defaults), func(a string) bool { return !first[a] })
	return append(ordered, slices.DeleteFunc(slices.Clone(defaults), func(a string) bool { return first[a] })...), nil
}
