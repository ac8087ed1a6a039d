package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"clusterctl/daemons/gitops"
)

// Bounds of what is verified.
const (
	maxSigned    = 4 << 20   // bytes of a commit or a tag
	maxSignature = 128 << 10 // bytes of a signature
	maxSigners   = 1000      // keys of a Secret
)

// keyAllowedSigners is the key of a Secret with ssh keys in the format of ssh-keygen's allowed signers.
const keyAllowedSigners = "allowed_signers"

// The first lines of signatures.
const (
	beginPGP = "-----BEGIN PGP SIGNATURE-----"
	beginSSH = "-----BEGIN SSH SIGNATURE-----"
)

// unverified marks an error about a signature.
func unverified(err error) error {
	return &gitops.ReasonError{Reason: gitops.ReasonVerification, Err: err}
}

// signers are the keys whose signatures are accepted.
type signers struct {
	pgp openpgp.EntityList
	ssh []sshSigner
}

// parseSigners reads the keys of a Secret.
func parseSigners(secret map[string][]byte) (*signers, error) {
	s := &signers{}
	for _, name := range slices.Sorted(maps.Keys(secret)) {
		text := secret[name]
		var err error
		switch {
		case strings.HasSuffix(name, ".asc"), strings.HasSuffix(name, ".pgp"):
			err = s.addPGP(text)
		case strings.HasSuffix(name, ".pub"):
			err = s.addPublicKeys(text)
		case name == keyAllowedSigners:
			err = s.addAllowedSigners(text)
		default:
			err = fmt.Errorf("its name neither ends with .asc, .pgp or .pub, nor is it %s", keyAllowedSigners)
		}
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", name, err)
		}
	}
	switch n := len(s.pgp) + len(s.ssh); {
	case n == 0:
		return nil, errors.New("it contains no keys of people who may sign")
	case n > maxSigners:
		return nil, fmt.Errorf("it contains %d keys, and at most %d are allowed", n, maxSigners)
	}
	return s, nil
}

// verify returns an error unless the selected commit, or the selected tag, has a signature of one of the keys. Keys
// must be valid now, whatever time the commit states, since its author chooses that time.
func (s *signers) verify(objects storer.EncodedObjectStorer, selected gitops.Selected, isTag bool,
	now time.Time) error {
	if isTag {
		text, err := rawObject(objects, plumbing.TagObject, selected.Tag)
		if err != nil {
			return err
		}
		payload, signature, err := splitTag(text, selected)
		if err != nil {
			return err
		}
		return s.check(payload, signature, now)
	}
	text, err := rawObject(objects, plumbing.CommitObject, selected.Hash)
	if err != nil {
		return err
	}
	payload, signature, err := splitCommit(text)
	if err != nil {
		return err
	}
	return s.check(payload, signature, now)
}

// rawObject returns the content of an object as it is stored. It is not decoded and encoded again, which could lose
// parts that the signature covers.
func rawObject(objects storer.EncodedObjectStorer, kind plumbing.ObjectType, id string) ([]byte, error) {
	o, err := objects.EncodedObject(kind, plumbing.NewHash(id))
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", kind, err)
	}
	if o.Size() > maxSigned {
		return nil, fmt.Errorf("the %s has %d bytes, and at most %d are verified", kind, o.Size(), maxSigned)
	}
	r, err := o.Reader()
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", kind, err)
	}
	defer r.Close()
	return io.ReadAll(r)
}

// splitCommit returns what is signed of a commit, which is all of it but the headers with signatures, and the
// signature.
func splitCommit(text []byte) (payload, signature []byte, err error) {
	var out bytes.Buffer
	header, inSignature, found := true, false, false
	seen := map[string]bool{}
	for line := range bytes.Lines(text) {
		if !header {
			out.Write(line)
			continue
		}
		if len(bytes.TrimRight(line, "\n")) == 0 {
			header, inSignature = false, false
			out.Write(line)
			continue
		}
		if line[0] == ' ' { // continues the previous header
			if inSignature {
				signature = append(signature, line[1:]...)
			} else {
				out.Write(line)
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(" "))
		inSignature = string(name) == "gpgsig"
		switch string(name) {
		case "gpgsig":
			if found {
				return nil, nil, errors.New("the commit has two signatures")
			}
			found = true
			signature = append(signature, value...)
			continue
		case "gpgsig-sha256":
			return nil, nil, errors.New("the commit has a signature for SHA-256 object IDs, which is not supported")
		case "tree", "author", "committer":
			if seen[string(name)] {
				return nil, nil, fmt.Errorf("the commit has two headers %q", name)
			}
			seen[string(name)] = true
		}
		out.Write(line)
	}
	switch {
	case !found:
		return nil, nil, errors.New("the commit is not signed")
	case !bytes.HasPrefix(text, []byte("tree ")):
		return nil, nil, errors.New("the commit does not begin with its tree")
	}
	return out.Bytes(), signature, nil
}

// splitTag returns what is signed of an annotated tag, which is everything before the signature, and the signature. The
// tag must have the selected name and commit. Otherwise a server could show the signed tag of another version.
func splitTag(text []byte, selected gitops.Selected) (payload, signature []byte, err error) {
	head, _, _ := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	want := []string{"object " + selected.Hash, "type commit", "tag " + selected.Label}
	if len(lines) < len(want) || !slices.Equal(lines[:len(want)], want) {
		return nil, nil, fmt.Errorf("the tag object is not that of tag %s for commit %s", selected.Label, selected.Hash)
	}
	at := -1
	for offset := 0; offset < len(text); {
		line := text[offset:]
		if bytes.HasPrefix(line, []byte(beginPGP)) || bytes.HasPrefix(line, []byte(beginSSH)) {
			at = offset // the last one, as Git does
		}
		end := bytes.IndexByte(line, '\n')
		if end < 0 {
			break
		}
		offset += end + 1
	}
	if at < 0 {
		return nil, nil, errors.New("the tag is not signed")
	}
	return text[:at], text[at:], nil
}

// check returns an error unless signature is one of payload by one of the keys.
func (s *signers) check(payload, signature []byte, now time.Time) error {
	if len(signature) > maxSignature {
		return fmt.Errorf("the signature has more than %d bytes", maxSignature)
	}
	switch {
	case bytes.HasPrefix(signature, []byte(beginSSH)):
		return s.checkSSH(payload, signature, now)
	case bytes.HasPrefix(signature, []byte(beginPGP)):
		return s.checkPGP(payload, signature, now)
	}
	return errors.New("the signature is neither one of OpenPGP nor one of ssh")
}
