package sealed

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/secretbox"

	"clusterctl/daemons/store/sealed/kms"
)

// encryptedPrefix is the prefix of every encrypted value. JSON never begins with it.
const encryptedPrefix = "k8s:enc:"

func isSealed(value []byte) bool { return bytes.HasPrefix(value, []byte(encryptedPrefix)) }

// providerKey is one key of a provider. Its values begin with prefix, for example k8s:enc:secretbox:v1:NAME:.
type providerKey struct {
	prefix  string
	encrypt cryptFunc
	decrypt cryptFunc
	plugin  *kms.Plugin // the plugin that holds the key; nil if encrypt and decrypt use it directly
}

// seal encrypts a value that is to be stored at path.
func (k *providerKey) seal(path string, plain []byte) ([]byte, error) {
	encrypt := k.encrypt
	if k.plugin != nil {
		encrypt = k.plugin.Seal
	}
	data, err := encrypt([]byte(path), plain)
	if err != nil {
		return nil, err
	}
	return append([]byte(k.prefix), data...), nil
}

// open decrypts a value. It may have to call a plugin.
func (k *providerKey) open(ctx context.Context, path string, value []byte) ([]byte, error) {
	if k.plugin != nil {
		return k.plugin.Open(ctx, []byte(path), value[len(k.prefix):])
	}
	return k.decrypt([]byte(path), value[len(k.prefix):])
}

// isCurrentForm reports whether a value has the form in which it would be written now.
func (k *providerKey) isCurrentForm(value []byte) bool {
	data, ok := bytes.CutPrefix(value, []byte(k.prefix))
	return ok && (k.plugin == nil || !k.plugin.Stale(data))
}

var errTampered = errors.New("the value was changed, or another key of the same name has written it")

func newProviderKey(provider, name string, secret []byte) (*providerKey, error) {
	k := &providerKey{prefix: encryptedPrefix + provider + ":v1:" + name + ":"}
	if provider == "secretbox" {
		if len(secret) != 32 {
			return nil, fmt.Errorf("the key has %d bytes, secretbox needs 32", len(secret))
		}
		k.encrypt, k.decrypt = secretboxCrypt([32]byte(secret))
		return k, nil
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("the key has %d bytes, %s needs 16, 24 or 32", len(secret), provider)
	}
	if provider == "aescbc" {
		k.encrypt, k.decrypt = cbcCrypt(block)
		return k, nil
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	// The path is authenticated, so a value that was moved to another path cannot be decrypted.
	k.encrypt = func(aad, plain []byte) ([]byte, error) { return aead.Seal(nil, nil, plain, aad), nil }
	k.decrypt = func(aad, data []byte) ([]byte, error) {
		plain, err := aead.Open(nil, nil, data, aad)
		if err != nil {
			return nil, errTampered
		}
		return plain, nil
	}
	return k, nil
}

type cryptFunc = func(aad, data []byte) ([]byte, error)

// secretboxCrypt returns XSalsa20 with Poly1305. The nonce precedes the data.
func secretboxCrypt(secret [32]byte) (encrypt, decrypt cryptFunc) {
	encrypt = func(_, plain []byte) ([]byte, error) {
		var nonce [24]byte
		if _, err := rand.Read(nonce[:]); err != nil {
			return nil, err
		}
		return secretbox.Seal(nonce[:], plain, &nonce, &secret), nil
	}
	decrypt = func(_, data []byte) ([]byte, error) {
		if len(data) < 24 {
			return nil, errTampered
		}
		plain, ok := secretbox.Open(nil, data[24:], (*[24]byte)(data), &secret)
		if !ok {
			return nil, errTampered
		}
		return plain, nil
	}
	return encrypt, decrypt
}

// cbcCrypt returns AES-CBC with PKCS#7 padding. The initialization vector precedes the data. It does not detect changed
// data.
func cbcCrypt(block cipher.Block) (encrypt, decrypt cryptFunc) {
	encrypt = func(_, plain []byte) ([]byte, error) {
		pad := aes.BlockSize - len(plain)%aes.BlockSize
		out := make([]byte, aes.BlockSize+len(plain)+pad)
		if _, err := rand.Read(out[:aes.BlockSize]); err != nil {
			return nil, err
		}
		body := out[aes.BlockSize:]
		copy(body, plain)
		for i := len(plain); i < len(body); i++ {
			body[i] = byte(pad)
		}
		cipher.NewCBCEncrypter(block, out[:aes.BlockSize]).CryptBlocks(body, body)
		return out, nil
	}
	decrypt = func(_, data []byte) ([]byte, error) {
		if len(data) < 2*aes.BlockSize || len(data)%aes.BlockSize != 0 {
			return nil, errTampered
		}
		out := make([]byte, len(data)-aes.BlockSize)
		cipher.NewCBCDecrypter(block, data[:aes.BlockSize]).CryptBlocks(out, data[aes.BlockSize:])
		pad := int(out[len(out)-1])
		if pad == 0 || pad > aes.BlockSize || !bytes.Equal(out[len(out)-pad:], bytes.Repeat([]byte{byte(pad)}, pad)) {
			return nil, errTampered
		}
		return out[:len(out)-pad], nil
	}
	return encrypt, decrypt
}
