package state

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"
)

// PassphraseEnv is the environment variable with the passphrase. If it is unset, the user's key file is used.
const PassphraseEnv = "CLUSTERCTL_STATE_PASSPHRASE"

// Sealer encrypts the keys, with the passphrase or with the key in a file. The file is created on first use.
type Sealer struct {
	Passphrase string
	KeyFile    string
}

// DefaultKeyFile returns the path of the user's key file, below XDG_CONFIG_HOME or ~/.config.
func DefaultKeyFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find your configuration folder: %w", err)
	}
	return filepath.Join(dir, "clusterctl", "age.key"), nil
}

// digest returns a digest of the plain text and of the sealer's settings.
func (s Sealer) digest(plain []byte) [sha256.Size]byte {
	return sha256.Sum256(append(fmt.Appendf(nil, "%q %q ", s.Passphrase, s.KeyFile), plain...))
}

// Seal encrypts plain.
func (s Sealer) Seal(plain []byte) ([]byte, error) {
	var recipient age.Recipient
	if s.Passphrase != "" {
		r, err := age.NewScryptRecipient(s.Passphrase)
		if err != nil {
			return nil, err
		}
		r.SetWorkFactor(15)
		recipient = r
	} else {
		identity, err := s.identity(true)
		if err != nil {
			return nil, err
		}
		recipient = identity.Recipient()
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, recipient)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Open decrypts sealed.
func (s Sealer) Open(sealed []byte) ([]byte, error) {
	var identity age.Identity
	if s.Passphrase != "" {
		i, err := age.NewScryptIdentity(s.Passphrase)
		if err != nil {
			return nil, err
		}
		identity = i
	} else {
		i, err := s.identity(false)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is not there: copy it from where the cluster was made, or set "+
				"%s", s.KeyFile, PassphraseEnv)
		}
		if err != nil {
			return nil, err
		}
		identity = i
	}
	r, err := age.Decrypt(bytes.NewReader(sealed), identity)
	if err != nil {
		return nil, fmt.Errorf("this is not the key that they were sealed with (%s, or %s): %w", s.KeyFile,
			PassphraseEnv, err)
	}
	return io.ReadAll(r)
}

func (s Sealer) identity(make bool) (*age.X25519Identity, error) {
	text, err := os.ReadFile(s.KeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && make:
		return s.createKeyFile()
	case err != nil:
		return nil, err
	}
	info, err := os.Stat(s.KeyFile)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others may read %s: chmod 600 it", s.KeyFile)
	}
	list, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.KeyFile, err)
	}
	for _, i := range list {
		if x, ok := i.(*age.X25519Identity); ok {
			return x, nil
		}
	}
	return nil, fmt.Errorf("no X25519 key in %s", s.KeyFile)
}

func (s Sealer) createKeyFile() (*age.X25519Identity, error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(s.KeyFile), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(s.KeyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(f, "# opens the keys of your clusters' states\n# public key: %s\n%s\n", identity.Recipient(),
		identity)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return identity, err
}
