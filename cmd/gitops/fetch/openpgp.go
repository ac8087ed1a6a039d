package fetch

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// pgpClockSkew is how far the clock of a signer may be ahead.
const pgpClockSkew = 24 * time.Hour

// pgpHashes are the accepted hashes of OpenPGP signatures.
var pgpHashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}

// beginPGPKeys is the first line of OpenPGP public keys.
const beginPGPKeys = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

// addPGP adds the keys of a file with one or more blocks in armor, of which the library reads only the first.
func (s *signers) addPGP(text []byte) error {
	_, rest, ok := bytes.Cut(text, []byte(beginPGPKeys))
	if !ok {
		return errors.New("it contains no OpenPGP public keys in armor")
	}
	for ok {
		var block []byte
		block, rest, ok = bytes.Cut(rest, []byte(beginPGPKeys))
		list, err := openpgp.ReadArmoredKeyRing(io.MultiReader(strings.NewReader(beginPGPKeys), bytes.NewReader(block)))
		if err != nil {
			return fmt.Errorf("read OpenPGP public keys: %w", err)
		}
		if s.pgp = append(s.pgp, list...); len(s.pgp) > maxSigners {
			return fmt.Errorf("it contains more than %d keys", maxSigners)
		}
	}
	return nil
}

// checkPGP verifies an OpenPGP signature.
func (s *signers) checkPGP(payload, signature []byte, now time.Time) error {
	if len(s.pgp) == 0 {
		return errors.New("it has an OpenPGP signature, and the Secret contains no OpenPGP key")
	}
	block, err := armor.Decode(bytes.NewReader(signature))
	if err != nil || block.Type != openpgp.SignatureType {
		return errors.New("the OpenPGP signature is damaged")
	}
	sig, signer, err := openpgp.VerifyDetachedSignature(s.pgp, bytes.NewReader(payload), block.Body,
		&packet.Config{Time: func() time.Time { return now }})
	var id string
	if signer != nil {
		id = fmt.Sprintf(" %X", signer.PrimaryKey.Fingerprint)
	}
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return errors.New("it is signed by an OpenPGP key that is not in the Secret")
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return fmt.Errorf("the OpenPGP key%s that has signed it has expired", id)
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return fmt.Errorf("the OpenPGP key%s that has signed it is revoked", id)
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return fmt.Errorf("the signature by the OpenPGP key%s has expired", id)
	case err != nil:
		return fmt.Errorf("the OpenPGP signature is not valid: %w", err)
	case sig == nil || signer == nil:
		return errors.New("the OpenPGP signature names no key")
	case !slices.Contains(pgpHashes, sig.Hash):
		return fmt.Errorf("the OpenPGP signature uses the hash %s, which is not secure", sig.Hash)
	case sig.CreationTime.After(now.Add(pgpClockSkew)):
		return errors.New("the OpenPGP signature was made in the future")
	}
	return nil
}
