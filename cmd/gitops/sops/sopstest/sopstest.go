// Package sopstest encrypts files for tests, as SOPS does.
package sopstest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// Modified is the time in the metadata of all files.
const Modified = "2026-01-31T12:00:00Z"

// File is an encrypted file that a test builds. Its values must be added in their order in the file.
type File struct {
	t   testing.TB
	Key []byte // the data key
	MAC []byte // input of the MAC
}

// NewFile returns a file with a new data key.
func NewFile(t testing.TB) *File {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return &File{t: t, Key: key}
}

// Seal returns an encrypted value.
func (f *File) Seal(text, about, kind string) string {
	f.t.Helper()
	block, err := aes.NewCipher(f.Key)
	if err != nil {
		f.t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, 32)
	if err != nil {
		f.t.Fatal(err)
	}
	iv := make([]byte, 32)
	_, _ = rand.Read(iv) // never fails
	out := gcm.Seal(nil, iv, []byte(text), []byte(about))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:%s]", encode(out[:len(out)-16]), encode(iv),
		encode(out[len(out)-16:]), kind)
}

// Value adds a value to the MAC, and returns it encrypted.
func (f *File) Value(text, path, kind string) string {
	f.MAC = append(f.MAC, text...)
	return f.Seal(text, path+":", kind)
}

// Plain adds a value to the MAC.
func (f *File) Plain(text string) string {
	f.MAC = append(f.MAC, text...)
	return text
}

// Envelope returns the data key, encrypted for a recipient.
func Envelope(t testing.TB, key []byte, to age.Recipient) string {
	t.Helper()
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(key)
	if err := errors.Join(err, w.Close(), armored.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Metadata returns the field sops. more is added to it.
func (f *File) Metadata(more string, to ...*age.X25519Identity) string {
	f.t.Helper()
	sum := sha512.Sum512(f.MAC)
	text := "sops:\n  lastmodified: \"" + Modified + "\"\n  mac: " +
		f.Seal(strings.ToUpper(hex.EncodeToString(sum[:])), Modified, "str") + "\n  version: 3.10.2\n" + more
	if len(to) > 0 {
		text += "  age:\n"
	}
	for _, id := range to {
		text += fmt.Sprintf("  - recipient: %s\n    enc: |\n      %s\n", id.Recipient(),
			strings.ReplaceAll(strings.TrimSpace(Envelope(f.t, f.Key, id.Recipient())), "\n", "\n      "))
	}
	return text
}
