package fetch

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshNamespace is the purpose that Git's ssh signatures state.
const sshNamespace = "git"

// sshMagic begins the data of an ssh signature. The format is that of OpenSSH's PROTOCOL.sshsig.
const sshMagic = "SSHSIG"

// sshAlgorithms are the accepted algorithms of signatures. Those with SHA-1, such as ssh-rsa, are missing.
var sshAlgorithms = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256}

// sshSigner is an ssh key whose signatures are accepted.
type sshSigner struct {
	key           ssh.PublicKey
	after, before time.Time // zero means no limit
}

// addPublicKeys adds the keys of a file in the format of id_ed25519.pub.
func (s *signers) addPublicKeys(text []byte) error {
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		key, _, options, after, err := ssh.ParseAuthorizedKey(rest)
		if err != nil {
			return errors.New("it is not an ssh public key")
		}
		if len(options) > 0 {
			return fmt.Errorf("options such as %s are not allowed here", options[0])
		}
		if err := s.addSSH(sshSigner{key: key}); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

// addSSH adds a key.
func (s *signers) addSSH(one sshSigner) error {
	if _, ok := one.key.(*ssh.Certificate); ok {
		return errors.New("certificates of ssh are not supported; use the keys themselves")
	}
	if len(s.ssh) >= maxSigners {
		return fmt.Errorf("it contains more than %d keys", maxSigners)
	}
	s.ssh = append(s.ssh, one)
	return nil
}

// addAllowedSigners adds the keys of a file of ssh-keygen's allowed signers. Each line has principals, which are not
// compared, options, and a key.
func (s *signers) addAllowedSigners(text []byte) error {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		_, rest, ok := cutField(line)
		if !ok {
			return fmt.Errorf("line %d: it has no key", n)
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
		if err != nil {
			return fmt.Errorf("line %d: it has no ssh public key", n)
		}
		one, isGit, err := parseSignerOptions(key, options)
		if err == nil && isGit {
			err = s.addSSH(one)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// cutField cuts a line after its first field, which may be quoted.
func cutField(line string) (field, rest string, ok bool) {
	if strings.HasPrefix(line, `"`) {
		field, rest, ok = strings.Cut(line[1:], `"`)
		return field, strings.TrimSpace(rest), ok
	}
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return line, "", false
	}
	return line[:i], strings.TrimSpace(line[i:]), true
}

// parseSignerOptions applies the options of a line of allowed signers. It reports whether the key may sign for Git.
func parseSignerOptions(key ssh.PublicKey, options []string) (one sshSigner, isGit bool, err error) {
	one, isGit = sshSigner{key: key}, true
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			if isGit, err = matchesNamespace(value); err != nil {
				return one, false, err
			}
		case "valid-after":
			one.after, err = parseSignerTime(value)
		case "valid-before":
			one.before, err = parseSignerTime(value)
		case "cert-authority":
			err = errors.New("certificate authorities are not supported; use the keys themselves")
		default:
			err = fmt.Errorf("the option %q is not known", name)
		}
		if err != nil {
			return one, false, err
		}
	}
	return one, isGit, nil
}

// matchesNamespace reports whether a list of patterns contains Git's namespace, and no pattern excludes it.
func matchesNamespace(patterns string) (matches bool, err error) {
	for pattern := range strings.SplitSeq(patterns, ",") {
		pattern, negated := strings.CutPrefix(strings.TrimSpace(pattern), "!")
		ok, err := path.Match(pattern, sshNamespace)
		if err != nil {
			return false, fmt.Errorf("%q is not a pattern of namespaces", pattern)
		}
		if ok && negated {
			return false, nil
		}
		matches = matches || ok
	}
	return matches, nil
}

// parseSignerTime parses a time such as 20260131, 202601311200 or 20260131120000, with Z for UTC. Without Z it is UTC
// too, since the controller has no time zone of its own.
func parseSignerTime(text string) (time.Time, error) {
	digits := strings.TrimSuffix(text, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(digits) == len(layout) {
			if t, err := time.Parse(layout, digits); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 20260131", text)
}

// checkSSH verifies an ssh signature.
func (s *signers) checkSSH(payload, signature []byte, now time.Time) error {
	block, rest := pem.Decode(signature)
	if block == nil || block.Type != "SSH SIGNATURE" || len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("the ssh signature is damaged")
	}
	var blob struct {
		Version                                       uint32
		PublicKey                                     []byte
		Namespace, Reserved, HashAlgorithm, Signature string
	}
	content, ok := bytes.CutPrefix(block.Bytes, []byte(sshMagic))
	if !ok || ssh.Unmarshal(content, &blob) != nil || blob.Version != 1 {
		return errors.New("the ssh signature does not have the format SSHSIG of version 1")
	}
	if blob.Namespace != sshNamespace {
		return fmt.Errorf("the ssh signature is one for %q, and not for %q", blob.Namespace, sshNamespace)
	}
	i := slices.IndexFunc(s.ssh, func(one sshSigner) bool { return bytes.Equal(one.key.Marshal(), blob.PublicKey) })
	if i < 0 {
		return errors.New("it is signed by an ssh key that is not in the Secret")
	}
	var digest []byte
	switch blob.HashAlgorithm {
	case "sha256":
		sum := sha256.Sum256(payload)
		digest = sum[:]
	case "sha512":
		sum := sha512.Sum512(payload)
		digest = sum[:]
	default:
		return fmt.Errorf("the ssh signature uses the hash %q", blob.HashAlgorithm)
	}
	var sig ssh.Signature
	if err := ssh.Unmarshal([]byte(blob.Signature), &sig); err != nil {
		return errors.New("the ssh signature is damaged")
	}
	if !slices.Contains(sshAlgorithms, sig.Format) {
		return fmt.Errorf("the ssh signature uses the algorithm %q", sig.Format)
	}
	signed := ssh.Marshal(struct{ Namespace, Reserved, HashAlgorithm, Digest string }{blob.Namespace, blob.Reserved,
		blob.HashAlgorithm, string(digest)})
	if err := s.ssh[i].key.Verify(append([]byte(sshMagic), signed...), &sig); err != nil {
		return errors.New("the ssh signature is not one of this content")
	}
	return s.isValid(blob.PublicKey, now)
}

// isValid returns an error unless one of the lines with a key is valid now.
func (s *signers) isValid(key []byte, now time.Time) error {
	id := ""
	for _, one := range s.ssh {
		if !bytes.Equal(one.key.Marshal(), key) {
			continue
		}
		if id = ssh.FingerprintSHA256(one.key); !now.Before(one.after) &&
			(one.before.IsZero() || now.Before(one.before)) {
			return nil
		}
	}
	return fmt.Errorf("the ssh key %s that has signed it is not valid now", id)
}
