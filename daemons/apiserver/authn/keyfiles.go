package authn

import (
	"crypto/sha256"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// keyFiles holds the keys of service-account tokens. It reads the files again when they change. So keys can be rotated
// without a restart, and tokens of removed keys are refused. If the new files are invalid, the last good keys remain in
// use.
type keyFiles struct {
	public  []string
	signing string
	now     func() time.Time
	log     *slog.Logger

	mu        sync.Mutex
	keys      *keySet
	digest    [sha256.Size]byte
	checkedAt time.Time
}

// keyCheckInterval is the minimum time between two checks of the files.
const keyCheckInterval = 5 * time.Second

func openKeys(public []string, signing string, now func() time.Time, log *slog.Logger) (*keyFiles, error) {
	f := &keyFiles{public: public, signing: signing, now: now, log: log, checkedAt: now()}
	f.digest = f.fileDigest() // computed before reading, so that a change in between is noticed
	keys, err := readKeys(public, signing)
	f.keys = keys
	return f, err
}

// current returns the current keys, which must not be changed.
func (f *keyFiles) current() *keySet {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if now.Sub(f.checkedAt) < keyCheckInterval {
		return f.keys
	}
	f.checkedAt = now
	digest := f.fileDigest()
	if digest == f.digest {
		return f.keys
	}
	f.digest = digest
	keys, err := readKeys(f.public, f.signing)
	if err != nil {
		f.log.Error("service-account keys have changed and cannot be used; the former ones stay in force", "err", err)
		return f.keys
	}
	f.log.Info("service-account keys have changed and are in use", "keys", len(keys.verifying))
	f.keys = keys
	return f.keys
}

// fileDigest returns a digest of all files. It ignores read errors, which readKeys reports.
func (f *keyFiles) fileDigest() [sha256.Size]byte {
	all := sha256.New()
	for _, file := range append(slices.Clone(f.public), f.signing) {
		text, _ := os.ReadFile(file)
		one := sha256.Sum256(text)
		_, _ = all.Write(one[:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}
