package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"clusterctl/certs"
)

// Exposed is a key that was on a machine which has left the control plane. The key must be replaced even if the machine
// was cleaned, because its files may have been copied.
type Exposed struct {
	// Name is the authority's, ServiceAccount, or that of an encryption key with its provider.
	Name    string    `json:"name"`
	Digest  string    `json:"digest,omitempty"` // of the authority's certificate or of the public key, SHA-256
	Machine string    `json:"machine"`          // address of its block
	At      time.Time `json:"at"`
}

// encryptionPrefix begins the names of encryption keys that are exposed.
const encryptionPrefix = "encryption "

// IsEncryption reports whether it is a key that encrypts what is stored.
func (e Exposed) IsEncryption() bool {
	return len(e.Name) > len(encryptionPrefix) && e.Name[:len(encryptionPrefix)] == encryptionPrefix
}

// Expose records that a machine which leaves the control plane has had all keys that are in use.
func (s *State) Expose(machine string, now time.Time) {
	list := s.Due()
	add := func(name string, public []byte) {
		e := Exposed{Name: name, Machine: machine, At: now}
		if public != nil {
			e.Digest = digestOf(public)
		}
		if !slices.ContainsFunc(
			list,
			func(have Exposed) bool { return have.Name == e.Name && have.Digest == e.Digest },
		) {
			list = append(list, e)
		}
	}
	for _, name := range []string{certs.ClusterCA, certs.EtcdCA, certs.FrontProxyCA} {
		if len(s.CAs[name]) > 0 {
			add(name, s.CAs[name])
		}
	}
	if len(s.Keys.ServicePublic) > 0 {
		add(ServiceAccount, s.Keys.ServicePublic)
	}
	for _, k := range s.Keys.Encryption.Keys {
		if len(k.Secret) > 0 {
			add(encryptionPrefix+k.ID(), nil)
		}
	}
	s.Exposed = list
}

// Due returns the exposed keys that are still trusted, or encrypt what is stored: they are due for replacement.
func (s *State) Due() (list []Exposed) {
	for _, e := range s.Exposed {
		var trusted [][]byte
		switch {
		case e.IsEncryption():
			if slices.ContainsFunc(
				s.Keys.Encryption.Keys,
				func(k EncryptionKey) bool { return encryptionPrefix+k.ID() == e.Name },
			) {
				list = append(list, e)
			}
			continue
		case e.Name == ServiceAccount:
			trusted = [][]byte{s.Keys.ServicePublic, s.Rotations[e.Name].Other}
		default:
			trusted = [][]byte{s.CAs[e.Name], s.Rotations[e.Name].Other}
		}
		if slices.ContainsFunc(
			trusted,
			func(public []byte) bool { return len(public) > 0 && digestOf(public) == e.Digest },
		) {
			list = append(list, e)
		}
	}
	return list
}

func digestOf(public []byte) string {
	sum := sha256.Sum256(bytes.TrimSpace(public))
	return hex.EncodeToString(sum[:])
}
