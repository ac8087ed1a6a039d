package fetch

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" // #nosec: a test of what is refused
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// sshKeyFile writes a new private key for the git program. It returns its path and the line of its public key.
func sshKeyFile(t *testing.T) (path, public string) {
	t.Helper()
	key := newKey(t)
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public = string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
	if err := os.WriteFile(path+".pub", []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, public
}

// pgpKey returns a new OpenPGP key, and its public part in armor. lifetime is in seconds; 0 is no limit.
func pgpKey(t *testing.T, created time.Time, lifetime uint32) (*openpgp.Entity, []byte) {
	t.Helper()
	e, err := openpgp.NewEntity("A", "", "a@example.com", &packet.Config{Time: func() time.Time { return created },
		Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: lifetime})
	if err != nil {
		t.Fatal(err)
	}
	return e, armored(t, openpgp.PublicKeyType, e.Serialize)
}

// signPGP returns a signature.
func signPGP(t *testing.T, e *openpgp.Entity, at time.Time, payload []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&out, e, bytes.NewReader(payload),
		&packet.Config{Time: func() time.Time { return at }}); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

func armored(t *testing.T, kind string, write func(io.Writer) error) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	if err == nil {
		err = errors.Join(write(w), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

// insertSignature returns a commit with a signature.
func insertSignature(commit, signature string) string {
	head, message, _ := strings.Cut(commit, "\n\n")
	lines := strings.Split(strings.TrimRight(signature, "\n"), "\n")
	return head + "\ngpgsig " + strings.Join(lines, "\n ") + "\n\n" + message
}

// commitRaw stores a commit as it is, and sets the branch to it.
func (r *repository) commitRaw(text string) string {
	r.t.Helper()
	cmd := exec.Command("git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally")
	cmd.Dir, cmd.Stdin = r.work, strings.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	id := strings.TrimSpace(string(out))
	r.git(r.work, "update-ref", "refs/heads/main", id)
	r.push("main")
	return id
}

func (r *repository) readCommit(id string) string {
	r.t.Helper()
	return r.git(r.work, "cat-file", "commit", id) + "\n"
}

// wantVerified fetches a source and compares the outcome. want is part of the error; "" means none.
func wantVerified(t *testing.T, name string, spec gitsource.Spec, ca []byte, keys map[string][]byte, want string) {
	t.Helper()
	s, err := newFetcher(t).Fetch(t.Context(), sourceOf(spec),
		gitops.Secrets{Credentials: map[string][]byte{keyCA: ca}, Signers: keys})
	if err == nil {
		s.Release()
	}
	var named *gitops.ReasonError
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want == "":
	case err == nil:
		t.Errorf("%s: it is accepted", name)
	case !errors.As(err, &named) || named.Reason != gitops.ReasonVerification || !strings.Contains(err.Error(), want):
		t.Errorf("%s: %v, want VerificationFailed with %q", name, err, want)
	}
}

// Proves P06.
//
//style:long a table of signatures and what is said of them
func TestCommitsNeedASignatureOfAKnownKey(t *testing.T) {
	r := newRepository(t)
	url, ca := r.serveHTTP(anybody)
	verified := gitsource.Spec{URL: url, Verify: &gitsource.Verify{Secret: "signers"}}
	file, public := sshKeyFile(t)
	_, other := sshKeyFile(t)
	now := time.Now()
	pgp, pgpPublic := pgpKey(t, now.Add(-time.Hour), 0)
	_, pgpOther := pgpKey(t, now.Add(-time.Hour), 0)
	expired, expiredPublic := pgpKey(t, now.Add(-48*time.Hour), 3600)
	keys := func(name string, text []byte) map[string][]byte { return map[string][]byte{name: text} }
	line := func(options string) []byte { return []byte("# people\na@example.com " + options + " " + public) }
	ours := keys("a.pub", []byte(public))

	plain := r.commit(map[string]string{"a": "one"})
	wantVerified(t, "unsigned", verified, ca, ours, "is not signed")
	wantVerified(t, "no keys", verified, ca, nil, "no keys")
	wantVerified(t, "another file", verified, ca, keys("identity", []byte(public)), "neither ends with")
	wantVerified(t, "no OpenPGP key", verified, ca, keys("a.asc", []byte("x")), "a.asc")

	r.git(r.work, "-c", "gpg.format=ssh", "-c", "user.signingkey="+file, "commit", "--quiet", "--allow-empty",
		"--gpg-sign", "--message", "signed\n\nby ssh")
	r.push("main")
	signed := r.readCommit("main")
	wantVerified(t, "ssh", verified, ca, ours, "")
	wantVerified(t, "ssh, two keys", verified, ca, keys("all.pub", []byte(other+public)), "")
	wantVerified(t, "ssh, another key", verified, ca, keys("a.pub", []byte(other)), "not in the Secret")
	wantVerified(t, "ssh with OpenPGP keys", verified, ca, keys("a.asc", pgpPublic), "not in the Secret")
	for options, want := range map[string]string{
		"":                            "",
		`namespaces="file,g*"`:        "",
		`namespaces="file"`:           "no keys",
		`namespaces="!git,*"`:         "no keys",
		`valid-after="20200101"`:      "",
		`valid-before="20200101"`:     "not valid now",
		`valid-after="209912312359Z"`: "not valid now",
		`valid-before="yesterday"`:    "is not a time",
		`cert-authority`:              "not supported",
		`no-touch`:                    "not known",
	} {
		wantVerified(t, "allowed signers with "+options, verified, ca, keys(keyAllowedSigners, line(options)), want)
	}

	_, signature, err := splitCommit([]byte(signed))
	if err != nil {
		t.Fatal(err)
	}
	r.commitRaw(insertSignature(r.readCommit(plain), string(signature)))
	wantVerified(t, "a signature of another commit", verified, ca, ours, "not one of this content")
	r.commitRaw(strings.Replace(signed, "signed\n", "changed\n", 1))
	wantVerified(t, "a changed message", verified, ca, ours, "not one of this content")
	r.commitRaw(insertSignature(signed, string(signature)))
	wantVerified(t, "two signatures", verified, ca, ours, "two signatures")
	r.commitRaw(strings.Replace(signed, "\nauthor ", "\nnote x\nauthor ", 1))
	wantVerified(t, "another header", verified, ca, ours, "not one of this content")
	for name, change := range map[string]func(text string) string{
		"damaged":  func(text string) string { return strings.Replace(text, "U1NIU0lH", "AAAAAAAA", 1) },
		"not pem":  func(text string) string { return strings.Replace(text, "-----END SSH", "-----END", 1) },
		"of X.509": func(text string) string { return strings.ReplaceAll(text, "SSH SIGNATURE", "SIGNED MESSAGE") },
	} {
		r.commitRaw(insertSignature(r.readCommit(plain), change(string(signature))))
		wantVerified(t, name, verified, ca, ours, "signature")
	}

	payload := r.readCommit(plain)
	sign := func(e *openpgp.Entity, at time.Time) string { return string(signPGP(t, e, at, []byte(payload))) }
	r.commitRaw(insertSignature(payload, sign(pgp, now)))
	wantVerified(t, "OpenPGP", verified, ca, keys("a.asc", pgpPublic), "")
	wantVerified(t, "OpenPGP, two keys", verified, ca, map[string][]byte{"a.pgp": pgpPublic, "b.asc": pgpOther,
		"c.pub": []byte(public)}, "")
	wantVerified(t, "OpenPGP, two blocks", verified, ca,
		keys("a.asc", append(append([]byte("A and B\n"), pgpOther...), pgpPublic...)), "")
	wantVerified(t, "OpenPGP, a damaged second block", verified, ca,
		keys("a.asc", append(bytes.Clone(pgpPublic), beginPGPKeys+"\n\nAAAA\n"...)), "read OpenPGP public keys")
	wantVerified(t, "OpenPGP, another key", verified, ca, keys("a.asc", pgpOther), "not in the Secret")
	wantVerified(t, "OpenPGP with ssh keys", verified, ca, ours, "no OpenPGP key")
	r.commitRaw(insertSignature(strings.Replace(payload, "change", "other", 1), sign(pgp, now)))
	wantVerified(t, "an OpenPGP signature of another commit", verified, ca, keys("a.asc", pgpPublic), "not valid")
	// Its author states that the commit was made while the key was valid.
	r.commitRaw(insertSignature(payload, sign(expired, now.Add(-47*time.Hour-30*time.Minute))))
	wantVerified(t, "an expired key", verified, ca, keys("a.asc", expiredPublic), "has expired")
}

// A server must not be able to show the signed tag of one version as that of another.
func TestTagsNeedASignatureOfTheirOwn(t *testing.T) {
	r := newRepository(t)
	url, ca := r.serveHTTP(anybody)
	file, public := sshKeyFile(t)
	keys := map[string][]byte{"a.pub": []byte(public)}
	sign := func(args ...string) {
		r.git(r.work, append([]string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + file, "tag"}, args...)...)
	}
	verified := func(tag string) gitsource.Spec {
		return gitsource.Spec{URL: url, Tag: tag, Verify: &gitsource.Verify{Mode: gitsource.VerifyTag, Secret: "s"}}
	}
	r.commit(map[string]string{"a": "one"})
	sign("--sign", "--message", "release", "v1.0.0")
	r.commit(map[string]string{"a": "two"})
	r.git(r.work, "tag", "v1.1.0")
	r.git(r.work, "tag", "--annotate", "--message", "release", "v1.2.0")
	old := r.git(r.work, "rev-parse", "refs/tags/v1.0.0")
	r.git(r.work, "update-ref", "refs/tags/v1.3.0", old)
	sign("--sign", "--message", "of a tag", "v1.4.0", "v1.0.0")
	pgp, pgpPublic := pgpKey(t, time.Now().Add(-time.Hour), 0)
	text := fmt.Sprintf("object %s\ntype commit\ntag v1.5.0\ntagger a <a@example.com> 1 +0000\n\nrelease\n",
		r.git(r.work, "rev-parse", "HEAD"))
	cmd := exec.Command("git", "hash-object", "-t", "tag", "-w", "--stdin")
	cmd.Dir, cmd.Stdin = r.work, strings.NewReader(text+string(signPGP(t, pgp, time.Now(), []byte(text))))
	id, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	r.git(r.work, "update-ref", "refs/tags/v1.5.0", strings.TrimSpace(string(id)))
	r.push("--tags")
	wantVerified(t, "signed", verified("v1.0.0"), ca, keys, "")
	wantVerified(t, "by semver", gitsource.Spec{URL: url, Semver: "1.0.x", Verify: verified("").Verify}, ca, keys, "")
	wantVerified(t, "lightweight", verified("v1.1.0"), ca, keys, "not annotated")
	wantVerified(t, "unsigned", verified("v1.2.0"), ca, keys, "not signed")
	wantVerified(t, "a replayed tag", verified("v1.3.0"), ca, keys, "not that of tag")
	wantVerified(t, "a tag of a tag", verified("v1.4.0"), ca, keys, "not that of tag")
	wantVerified(t, "OpenPGP", verified("v1.5.0"), ca, map[string][]byte{"a.asc": pgpPublic}, "")
	wantVerified(t, "OpenPGP with another key", verified("v1.5.0"), ca, keys, "no OpenPGP key")
	head := verified("v1.0.0")
	head.Verify = &gitsource.Verify{Secret: "s"}
	wantVerified(t, "a signed tag of an unsigned commit", head, ca, keys, "commit is not signed")
}

// signSSH returns an ssh signature of a payload, with parts that a test chooses.
func signSSH(t *testing.T, signer ssh.Signer, namespace, hash string, digest []byte, algorithm string) []byte {
	t.Helper()
	signed := append([]byte(sshMagic),
		ssh.Marshal(struct{ Namespace, Reserved, Hash, Digest string }{namespace, "", hash,
			string(digest)})...)
	sig, err := signer.Sign(rand.Reader, signed)
	if algorithm != "" {
		multi, ok := signer.(ssh.AlgorithmSigner)
		if !ok {
			t.Fatal("no choice of algorithms")
		}
		sig, err = multi.SignWithAlgorithm(rand.Reader, signed, algorithm)
	}
	if err != nil {
		t.Fatal(err)
	}
	blob := ssh.Marshal(struct {
		Version                          uint32
		Key                              []byte
		Namespace, Reserved, Hash, Value string
	}{1, signer.PublicKey().Marshal(), namespace, "", hash, string(ssh.Marshal(sig))})
	return pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: append([]byte(sshMagic), blob...)})
}

func TestWeakSSHSignaturesAreRefused(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	payload := []byte("payload")
	digest := func(h crypto.Hash) []byte {
		sum := h.New()
		_, _ = sum.Write(payload)
		return sum.Sum(nil)
	}
	sum := sha1.Sum(payload) // #nosec
	for name, row := range map[string]struct {
		key                        any
		namespace, hash, algorithm string
		digest                     []byte
		want                       string
	}{
		"sha512":             {private, "git", "sha512", "", digest(crypto.SHA512), ""},
		"sha256":             {private, "git", "sha256", "", digest(crypto.SHA256), ""},
		"RSA":                {rsaKey, "git", "sha512", ssh.KeyAlgoRSASHA512, digest(crypto.SHA512), ""},
		"RSA with SHA-1":     {rsaKey, "git", "sha512", ssh.KeyAlgoRSA, digest(crypto.SHA512), "algorithm"},
		"another namespace":  {private, "file", "sha512", "", digest(crypto.SHA512), `one for "file"`},
		"no namespace":       {private, "", "sha512", "", digest(crypto.SHA512), `one for ""`},
		"SHA-1":              {private, "git", "sha1", "", sum[:], `the hash "sha1"`},
		"the hash of others": {private, "git", "sha512", "", digest(crypto.SHA256), "not one of this content"},
	} {
		signer, err := ssh.NewSignerFromKey(row.key)
		if err != nil {
			t.Fatal(err)
		}
		s := &signers{ssh: []sshSigner{{key: signer.PublicKey()}}}
		err = s.check(payload, signSSH(t, signer, row.namespace, row.hash, row.digest, row.algorithm), time.Now())
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func FuzzSignedObjects(f *testing.F) {
	f.Add([]byte("tree a\ngpgsig "+beginSSH+"\n AAAA\n -----END SSH "+
		"SIGNATURE-----\n\nm\n"), []byte(beginPGP+"\n\nAAAA\n"))
	f.Fuzz(func(t *testing.T, object, signature []byte) {
		s := &signers{ssh: []sshSigner{}, pgp: openpgp.EntityList{&openpgp.Entity{PrimaryKey: &packet.PublicKey{}}}}
		if payload, sig, err := splitCommit(object); err == nil && s.check(payload, sig, time.Now()) == nil {
			t.Error("a signature without a key is accepted")
		}
		if s.check(object, signature, time.Now()) == nil {
			t.Error("a signature without a key is accepted")
		}
		_, _, _ = splitTag(object, gitops.Selected{})
	})
}
