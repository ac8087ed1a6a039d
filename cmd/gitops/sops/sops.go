// Package sops decrypts files that SOPS has encrypted for age recipients. It implements the format itself, since the
// library of SOPS brings the clients of all cloud providers. A file is a YAML or JSON document with the field sops,
// which holds the data key, encrypted for each recipient, and a message authentication code (MAC) over all values.
package sops

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"

	"clusterctl/daemons/gitops"
)

// Bounds of what is decrypted.
const (
	maxFile       = 2 << 20  // bytes of an encrypted file, whose nodes take up to a hundred times as much
	maxIdentities = 100      // private keys of a Secret
	maxRecipients = 100      // recipients of a file
	maxEnvelope   = 16 << 10 // bytes of a data key, encrypted for one recipient
)

// keySuffix ends the names of a Secret's keys with private keys of age.
const keySuffix = ".agekey"

// refused marks an error about an encrypted file.
func refused(format string, args ...any) error {
	return &gitops.ReasonError{Reason: gitops.ReasonDecryption, Err: fmt.Errorf(format, args...)}
}

// Decrypter implements gitops.Decrypter.
type Decrypter struct{}

// Decrypt implements gitops.Decrypter.
func (Decrypter) Decrypt(files fs.FS, keys map[string][]byte) (fs.FS, func(string) string, error) {
	identities, err := parseIdentities(keys)
	if err != nil {
		return nil, nil, refused("%w", err)
	}
	values := newRedactor()
	return &decryptedFiles{files: files, identities: identities, values: values, done: map[string][]byte{}},
		values.redact, nil
}

// parseIdentities reads the private keys of a Secret. Errors contain nothing of them.
func parseIdentities(keys map[string][]byte) (all []age.Identity, err error) {
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if !strings.HasSuffix(name, keySuffix) {
			return nil, fmt.Errorf("the Secret has the key %q, which does not end with %s", name, keySuffix)
		}
		list, err := age.ParseIdentities(bytes.NewReader(keys[name]))
		if err != nil {
			return nil, fmt.Errorf("the Secret's key %q does not contain private keys of age", name)
		}
		all = append(all, list...)
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("the Secret has no key that ends with %s", keySuffix)
	case len(all) > maxIdentities:
		return nil, fmt.Errorf("the Secret has %d private keys, and at most %d are allowed", len(all), maxIdentities)
	}
	return all, nil
}

// decryptedFiles is a file system that decrypts files when they are opened. It is safe for concurrent use.
type decryptedFiles struct {
	files      fs.FS
	identities []age.Identity
	values     *redactor

	mu    sync.Mutex        // guards the fields below
	done  map[string][]byte // decrypted files by path
	bytes int               // bytes of done
}

var (
	_ fs.ReadDirFS = (*decryptedFiles)(nil)
	_ fs.StatFS    = (*decryptedFiles)(nil)
)

// ReadDir implements fs.ReadDirFS.
func (d *decryptedFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(d.files, name)
}

// Stat implements fs.StatFS. The size is that of the encrypted file.
func (d *decryptedFiles) Stat(name string) (fs.FileInfo, error) { return fs.Stat(d.files, name) }

// Open implements fs.FS.
func (d *decryptedFiles) Open(name string) (fs.File, error) {
	f, err := d.files.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > gitops.MaxFileBytes {
		return f, err // the renderer refuses it
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, gitops.MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
		if bytes.Contains(text, []byte(metadataKey)) && macPattern.Match(text) {
			return nil, refused(
				"%s: it is encrypted with SOPS, and only files with the suffixes .yaml, .yml and .json are decrypted",
				name)
		}
	} else if text, err = d.decrypt(name, text); err != nil {
		return nil, err
	}
	return &textFile{Reader: bytes.NewReader(text), info: textInfo{info, int64(len(text))}}, nil
}

// decrypt returns the text of a file, decrypted if it is encrypted.
func (d *decryptedFiles) decrypt(name string, text []byte) ([]byte, error) {
	if !bytes.Contains(text, []byte("sops")) || !bytes.Contains(text, []byte(valuePrefix)) {
		return text, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if plain, ok := d.done[name]; ok {
		return plain, nil
	}
	plain, values, err := decryptFile(text, path.Ext(name) == ".json", d.identities)
	if err != nil {
		return nil, refused("%s: %w", name, err)
	}
	if plain == nil {
		return text, nil // it only contains the word
	}
	for _, v := range values {
		d.values.add(v)
	}
	if d.bytes += len(plain); d.bytes > gitops.MaxBytes {
		return nil, refused("%s: the encrypted files have more than %d bytes", name, gitops.MaxBytes)
	}
	d.done[name] = plain
	return plain, nil
}

// textFile is an open file with a text in memory.
type textFile struct {
	*bytes.Reader
	info textInfo
}

// Stat implements fs.File.
func (f *textFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Close implements fs.File.
func (f *textFile) Close() error { return nil }

// textInfo describes a file with another size.
type textInfo struct {
	fs.FileInfo
	size int64
}

func (i textInfo) Size() int64 { return i.size }
