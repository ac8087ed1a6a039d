package authn

import (
	"crypto/sha256"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// keyFiles are the keys of service-account tokens in files that are read again when they change: keys are rotated
// without a restart, and what a key that is taken away has signed is not believed any more. Files that make no sense
// leave the last good ones in force.
type keyFiles struct {
	public  []string
	signing string
	now     func() time.Time
	log     *slog.Logger

	mu     sync.Mutex
	keys   *keySet
	digest [sha256.Size]byte
	looked time.Time
}

// keysLookEvery is how often the files are looked at, at most.
const keysLookEvery = 5 * time.Second

func openKeys(public []string, signing string, now func() time.Time, log *slog.Logger) (*keyFiles, error) {
	f := &keyFiles{public: public, signing: signing, now: now, log: log, looked: now()}
	f.digest = f.sum() // before they are read: what changes meanwhile is looked at again
	keys, err := readKeys(public, signing)
	f.keys = keys
	return f, err
}

// get is the keys as they are now. Nobody changes them.
func (f *keyFiles) get() *keySet {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if now.Sub(f.looked) < keysLookEvery {
		return f.keys
	}
	f.looked = now
	digest := f.sum()
	if digest == f.digest {
		return f.keys
	}
	f.digest = digest
	keys, err := readKeys(f.public, f.signing)
	if err != nil {
		f.log.Error("service-account keys have changed and cannot be used; the former ones stay in force", "err", err)
		return f.keys
	}
	f.log.Info("service-account keys have changed and are in use", "keys", len(keys.public))
	f.keys = keys
	return f.keys
}

// sum is a digest of all files. What cannot be read is told when the keys are.
func (f *keyFiles) sum() [sha256.Size]byte {
	all := sha256.New()
	for _, file := range append(slices.Clone(f.public), f.signing) {
		text, _ := os.ReadFile(file)
		one := sha256.Sum256(text)
		_, _ = all.Write(one[:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}
