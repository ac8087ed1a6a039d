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

// seedSize is the length of a seed, and of the random bytes that determine a value's key.
const seedSize = 32

var errTampered = errors.New("the value was changed or moved, or another key has encrypted it")

// keySeed is the secret from which the keys of values are derived. For values of upstream's early releases it is the
// key of all values.
type keySeed struct {
	secret   []byte
	fixedKey cipher.AEAD // the key of all values; nil if keys are derived
}

func newSeed() (*keySeed, error) {
	s := &keySeed{secret: make([]byte, seedSize)}
	_, err := rand.Read(s.secret)
	return s, err
}

// seedOf returns the seed with a secret that the plugin has decrypted.
func seedOf(w wrapped, secret []byte) (*keySeed, error) {
	if w.EncryptedDEKSourceType == seedType {
		if len(secret) < seedSize {
			return nil, fmt.Errorf("what the plugin has decrypted has %d bytes, a seed has %d", len(secret), seedSize)
		}
		return &keySeed{secret: secret}, nil
	}
	whole, err := newSealer(secret)
	if err != nil {
		return nil, fmt.Errorf("what the plugin has decrypted has %d bytes, a key of AES has 16, 24 or 32", len(secret))
	}
	return &keySeed{fixedKey: whole}, nil
}

// newSealer returns AES-GCM with a random nonce before the encrypted data.
func newSealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// derive returns the key for random bytes.
func (s *keySeed) derive(info []byte) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, s.secret, string(info), 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return newSealer(key)
}

// encrypt encrypts a value with a new key. The random bytes from which the key is derived precede the data.
func (s *keySeed) encrypt(where, plain []byte) ([]byte, error) {
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

func (s *keySeed) decrypt(where, data []byte) ([]byte, error) {
	aead := s.fixedKey
	if aead == nil {
		if len(data) < seedSize {
			return nil, errTampered
		}
		var err error
		if aead, err = s.derive(data[:seedSize]); err != nil {
			return nil, err
		}
		data = data[seedSize:]
	}
	plain, err := aead.Open(nil, nil, data, where)
	if err != nil {
		return nil, errTampered
	}
	return plain, nil
}
