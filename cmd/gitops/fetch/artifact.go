package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"clusterctl/daemons/gitops"
)

// filesFolder is the folder of a cached artifact with its files.
const filesFolder = "files"

// digestPrefix begins a digest. Only SHA-256 is supported.
const digestPrefix = "sha256:"

// isDigest reports whether a text is a digest.
func isDigest(text string) bool {
	digits, ok := strings.CutPrefix(text, digestPrefix)
	return ok && len(digits) == 2*sha256.Size && strings.Trim(digits, "0123456789abcdef") == ""
}

// openArtifact returns the snapshot of an artifact. If it is not in the cache, fill writes its files into a directory.
func (f *Fetcher) openArtifact(ctx context.Context, key, revision string,
	fill func(dir string) error) (gitops.Snapshot, error) {
	dir, release, err := f.cache.get(ctx, key, func(dir string) error {
		files := filepath.Join(dir, filesFolder)
		if err := os.Mkdir(files, 0o700); err != nil {
			return err
		}
		return fill(files)
	})
	if err != nil {
		return gitops.Snapshot{}, fmt.Errorf("download %s: %w", revision, err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, filesFolder))
	if err != nil {
		release()
		return gitops.Snapshot{}, err
	}
	return gitops.Snapshot{Revision: revision, Files: folder{root}, Release: sync.OnceFunc(func() {
		_ = root.Close()
		release()
	})}, nil
}

// saved is a downloaded archive in a temporary file. It is closed and removed by close.
type saved struct {
	*os.File
	digest string
	size   int64
}

// save writes an archive into a temporary file in a directory.
func save(r io.Reader, dir string) (*saved, error) {
	file, err := os.CreateTemp(dir, "incoming-*")
	if err != nil {
		return nil, err
	}
	s := &saved{File: file}
	sum := sha256.New()
	s.size, err = io.Copy(io.MultiWriter(file, sum), &limitedReader{r: r, left: maxArchiveBytes,
		err: fmt.Errorf("the archive has more than %d bytes", maxArchiveBytes)})
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	s.digest = digestPrefix + hex.EncodeToString(sum.Sum(nil))
	return s, nil
}

func (s *saved) close() {
	_ = s.File.Close()
	_ = os.Remove(s.File.Name())
}
