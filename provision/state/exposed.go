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
	// Name is the name of an authority, ServiceAccount, or the ID of an encryption key after encryptionPrefix.
	Name    string    `json:"name"`
	Digest  string    `json:"digest,omitempty"` // SHA-256 of the authority's certificate or of the public key
	Machine string    `json:"machine"`          // address of its block
	At      time.Time `json:"at"`
}

// encryptionPrefix is the prefix of the names of exposed encryption keys.
const encryptionPrefix = "encryption "

// IsEncryption reports whether the key encrypts stored values.
func (e Exposed) IsEncryption() bool {
	return len(e.Name) > len(encryptionPrefix) && e.Name[:len(encryptionPrefix)] == encryptionPrefix
}

// RecordExposure records that a machine which leaves the control plane had all keys that are in use.
func (s *State) RecordExposure(machine string, now time.Time) {
	list := s.DueKeys()
	add := func(name string, public []byte) {
		e := Exposed{Name: name, Machine: machine, At: now}
		if public != nil {
			e.Digest = digestOf(public)
		}
		if !slices.ContainsFunc(list,
			func(current Exposed) bool { return current.Name == e.Name && current.Digest == e.Digest }) {
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

// DueKeys returns the exposed keys that must be replaced: those that are still trusted or encrypt stored values.
func (s *State) DueKeys() (list []Exposed) {
	for _, e := range s.Exposed {
		var trusted [][]byte
		switch {
		case e.IsEncryption():
			if slices.ContainsFunc(s.Keys.Encryption.Keys,
				func(k EncryptionKey) bool { return encryptionPrefix+k.ID() == e.Name }) {
				list = append(list, e)
			}
			continue
		case e.Name == ServiceAccount:
			trusted = [][]byte{s.Keys.ServicePublic, s.Rotations[e.Name].Peer}
		default:
			trusted = [][]byte{s.CAs[e.Name], s.Rotations[e.Name].Peer}
		}
		if slices.ContainsFunc(trusted,
			func(public []byte) bool { return len(public) > 0 && digestOf(public) == e.Digest }) {
			list = append(list, e)
		}
	}
	return list
}

func digestOf(public []byte) string {
	sum := sha256.Sum256(bytes.TrimSpace(public))
	return hex.EncodeToString(sum[:])
}
