package kms

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// seedSize is also how many random bytes a value's key follows from.
const seedSize = 32

var errBroken = errors.New("the value was changed or moved, or another key has encrypted it")

// seed is what values' keys are derived of, or, of values that upstream's early releases wrote, the one key of all.
type seed struct {
	secret []byte
	whole  cipher.AEAD // nil: keys are derived
}

func newSeed() (*seed, error) {
	s := &seed{secret: make([]byte, seedSize)}
	_, err := rand.Read(s.secret)
	return s, err
}

// seedOf is what the plugin has decrypted.
func seedOf(w wrapped, secret []byte) (*seed, error) {
	if w.EncryptedDEKSourceType == seedType {
		if len(secret) < seedSize {
			return nil, fmt.Errorf("what the plugin has decrypted has %d bytes, a seed has %d", len(secret), seedSize)
		}
		return &seed{secret: secret}, nil
	}
	whole, err := sealer(secret)
	if err != nil {
		return nil, fmt.Errorf("what the plugin has decrypted has %d bytes, a key of AES has 16, 24 or 32", len(secret))
	}
	return &seed{whole: whole}, nil
}

// sealer is AES-GCM that puts a random nonce before what it encrypts.
func sealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// derive makes the key that belongs to random bytes.
func (s *seed) derive(info []byte) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, s.secret, string(info), 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return sealer(key)
}

// encrypt uses a key that was never used and never will be again. What it is derived of comes first.
func (s *seed) encrypt(where, plain []byte) ([]byte, error) {
	out := make([]byte, seedSize, seedSize+len(plain)+64)
	if _, err := rand.Read(out); err != nil {
		return nil, err
	}
	aead, err := s.derive(out)
	if err != nil {
		return nil, err
	}
	return aead.Seal(out, nil, plain, where), nil
}

func (s *seed) decrypt(where, data []byte) ([]byte, error) {
	aead := s.whole
	if aead == nil {
		if len(data) < seedSize {
			return nil, errBroken
		}
		var err error
		if aead, err = s.derive(data[:seedSize]); err != nil {
			return nil, err
		}
		data = data[seedSize:]
	}
	plain, err := aead.Open(nil, nil, data, where)
	if err != nil {
		return nil, errBroken
	}
	return plain, nil
}
