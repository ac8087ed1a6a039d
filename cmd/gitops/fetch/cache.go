package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Bounds of the cache.
const (
	maxCacheBytes = 2 << 30 // bytes on the disk; repositories in use may exceed it
	maxCacheItems = 256     // repositories
)

// objectCache is the number of bytes of objects that go-git keeps of one repository.
const objectCache = 4 << 20

// commitCache holds downloaded commits in directories. Commits that are in use stay; of the others, those that were
// used last.
type commitCache struct {
	dir string

	mu    sync.Mutex // guards the fields below
	items map[string]*cachedRepository
	clock int64 // counts uses
	bytes int64
}

// cachedRepository is one commit.
type cachedRepository struct {
	key, dir string
	ready    chan struct{} // closed when the download has ended
	err      error         // of the download; set before ready is closed
	size     int64
	users    int
	lastUse  int64
}

func newCache(dir string) (*commitCache, error) {
	dir = filepath.Join(dir, "repositories")
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("empty the cache: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	return &commitCache{dir: dir, items: map[string]*cachedRepository{}}, nil
}

func (c *commitCache) close() error { return os.RemoveAll(c.dir) }

// get returns the directory of a commit or an artifact. If it is not in the cache, download writes it into a directory.
// Concurrent calls for one commit share the download. The caller calls release when it no longer reads.
func (c *commitCache) get(ctx context.Context, key string, download func(dir string) error) (dir string,
	release func(), err error) {
	for {
		c.mu.Lock()
		item := c.items[key]
		if item == nil {
			item = &cachedRepository{key: key, dir: filepath.Join(c.dir, key), ready: make(chan struct{})}
			c.items[key] = item
			c.use(item)
			c.mu.Unlock()
			c.fill(item, download)
		} else {
			c.use(item)
			c.mu.Unlock()
		}
		select {
		case <-item.ready:
		case <-ctx.Done():
			c.release(item)
			return "", nil, ctx.Err()
		}
		if item.err == nil {
			return item.dir, sync.OnceFunc(func() { c.release(item) }), nil
		}
		c.release(item)
		// The download of another caller may have ended with that caller's context.
		if ctx.Err() == nil && isContextError(item.err) {
			continue
		}
		return "", nil, item.err
	}
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// use counts a user. The caller holds mu.
func (c *commitCache) use(item *cachedRepository) {
	c.clock++
	item.users++
	item.lastUse = c.clock
}

// fill downloads a commit.
func (c *commitCache) fill(item *cachedRepository, download func(dir string) error) {
	err := os.Mkdir(item.dir, 0o700)
	if err == nil {
		err = download(item.dir)
	}
	var size int64
	if err == nil {
		size, err = sizeOf(item.dir)
	}
	c.mu.Lock()
	item.err, item.size = err, size
	if err == nil {
		c.bytes += size
	} else {
		delete(c.items, item.key)
		_ = os.RemoveAll(item.dir) // a later download makes the directory again, or reports why it cannot
	}
	c.mu.Unlock()
	close(item.ready)
}

// release ends a use, and removes commits while the cache is too large.
func (c *commitCache) release(item *cachedRepository) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item.users--
	for c.bytes > maxCacheBytes || len(c.items) > maxCacheItems {
		var oldest *cachedRepository
		for _, other := range c.items {
			if other.users == 0 && (oldest == nil || other.lastUse < oldest.lastUse) {
				oldest = other
			}
		}
		if oldest == nil {
			return
		}
		delete(c.items, oldest.key)
		c.bytes -= oldest.size
		_ = os.RemoveAll(oldest.dir) // the next start of the program removes what is left
	}
}

// openStorage opens the repository in a directory.
func openStorage(dir string) *filesystem.Storage {
	return filesystem.NewStorage(osfs.New(dir, osfs.WithBoundOS()), cache.NewObjectLRU(objectCache))
}

// indexPack writes a checked pack into the repository in a directory. A small pack of deltas can take days, so that it
// ends when ctx ends.
func indexPack(ctx context.Context, dir string, pack io.Reader) error {
	files := endingFiles{osfs.New(dir, osfs.WithBoundOS()), ctx}
	return packfile.UpdateObjectStorage(filesystem.NewStorage(files, cache.NewObjectLRU(objectCache)), pack)
}

// endingFiles is a file system whose files cannot be read after ctx has ended.
type endingFiles struct {
	billy.Filesystem
	ctx context.Context // of one call of indexPack, which this value does not outlive
}

// Open implements billy.Filesystem.
func (f endingFiles) Open(name string) (billy.File, error) {
	file, err := f.Filesystem.Open(name)
	return endingFile{file, f.ctx}, err
}

// endingFile is a file that cannot be read after ctx has ended.
type endingFile struct {
	billy.File
	ctx context.Context
}

// Read implements io.Reader.
func (f endingFile) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

// minFileBytes is about what a file or a folder takes on a disk, whatever its size.
const minFileBytes = 4 << 10

// sizeOf returns about how much all files and folders in a directory take on the disk.
func sizeOf(dir string) (total int64, err error) {
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		switch {
		case err != nil:
			return err
		case info.Mode().IsRegular():
			total += max(info.Size(), minFileBytes)
		default:
			total += minFileBytes
		}
		return nil
	})
	return total, err
}
