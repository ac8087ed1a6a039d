package fetch

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"slices"
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
