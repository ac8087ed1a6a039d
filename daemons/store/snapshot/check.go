package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"clusterctl/daemons/config/store"
)

// ErrDamaged reports that a file is not a complete snapshot.
var ErrDamaged = errors.New("the snapshot is damaged")

// Check reads a whole snapshot: the hash at its end, every page of the database, and every key. It returns a
// description of the snapshot.
func Check(path string) (store.Snapshot, error) {
	sum, size, err := verifyHash(path)
	if err != nil {
		return store.Snapshot{}, err
	}
	s := store.Snapshot{Size: size, SHA256: sum}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return s, fmt.Errorf("%w: open the database in %s: %w", ErrDamaged, path, err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return countKeys(tx, &s)
	})
	if err != nil {
		return s, fmt.Errorf("%w: read the database in %s: %w", ErrDamaged, path, err)
	}
	return s, nil
}

// verifyHash compares the hash at the end of the file with the file's content. It returns the hash of the whole file.
func verifyHash(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	size = info.Size()
	if size%512 != sha256.Size {
		return "", size, fmt.Errorf("%w: %s has %d bytes, which is not a database with a hash at its end", ErrDamaged,
			path, size)
	}
	whole, content := sha256.New(), sha256.New()
	if _, err := io.CopyN(io.MultiWriter(whole, content), f, size-sha256.Size); err != nil {
		return "", size, fmt.Errorf("read %s: %w", path, err)
	}
	stored := make([]byte, sha256.Size)
	if _, err := io.ReadFull(f, stored); err != nil {
		return "", size, fmt.Errorf("read %s: %w", path, err)
	}
	_, _ = whole.Write(stored) // cannot fail
	if !bytes.Equal(stored, content.Sum(nil)) {
		return "", size, fmt.Errorf("%w: the hash at the end of %s is of another content", ErrDamaged, path)
	}
	return hex.EncodeToString(whole.Sum(nil)), size, nil
}

// encryptedPrefix is the prefix of every encrypted value: k8s:enc:PROVIDER:VERSION:KEY:.
const encryptedPrefix = "k8s:enc:"

// countKeys reads all revisions of all keys.
func countKeys(tx *bolt.Tx, s *store.Snapshot) error {
	b := tx.Bucket(schema.Key.Name())
	if b == nil {
		return errors.New("it has no keys, and is not a store's snapshot")
	}
	live := map[string]string{} // by key: the provider, version and name of the encryption key
	err := b.ForEach(func(k, v []byte) error {
		if !isRevision(k) {
			return fmt.Errorf("%x is not a revision", k)
		}
		s.Revision = mvcc.BytesToRev(k).Main
		if len(v) == 0 { // the mark of a revision that a restore raised
			return nil
		}
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			return fmt.Errorf("read the value at revision %d: %w", s.Revision, err)
		}
		if mvcc.IsTombstone(k) {
			delete(live, string(kv.Key))
		} else {
			live[string(kv.Key)] = encryptionKeyOf(kv.Value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Keys = len(live)
	for key, with := range live {
		if with == "" {
			continue
		}
		if s.Encryption == nil {
			s.Encryption = map[string][]string{}
		}
		if r := resourceOfKey(key); !slices.Contains(s.Encryption[with], r) {
			s.Encryption[with] = append(s.Encryption[with], r)
		}
	}
	for _, list := range s.Encryption {
		slices.Sort(list)
	}
	return nil
}

// isRevision reports whether bytes have the form of a revision: two numbers with an underscore between them, and
// optionally a mark.
func isRevision(k []byte) bool { return (len(k) == 17 || len(k) == 18) && k[8] == '_' }

// encryptionKeyOf returns PROVIDER:VERSION:KEY of an encrypted value; empty for others.
func encryptionKeyOf(value []byte) string {
	rest, ok := bytes.CutPrefix(value, []byte(encryptedPrefix))
	if !ok {
		return ""
	}
	parts := bytes.SplitN(rest[:min(len(rest), 512)], []byte(":"), 4)
	if len(parts) < 4 {
		return ""
	}
	return string(bytes.Join(parts[:3], []byte(":")))
}

// resourceOfKey returns the resource of a key: secrets for /registry/secrets/NAMESPACE/NAME, widgets.example.com for
// /registry/example.com/widgets/….
func resourceOfKey(key string) string {
	parts := strings.Split(strings.TrimPrefix(key, "/"), "/")
	switch {
	case len(parts) < 2:
		return key
	case strings.Contains(parts[1], ".") && len(parts) > 2:
		return parts[2] + "." + parts[1]
	}
	return parts[1]
}
