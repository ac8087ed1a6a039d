package fetch

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Bounds of archives.
const (
	maxArchiveBytes = 64 << 20 // bytes of a packed archive
	maxArchiveDepth = 64       // folders in folders
	maxArchiveName  = 1024     // bytes of a path
)

// archiveLimits limits what is unpacked.
type archiveLimits struct {
	bytes   int64 // of all files, and of the inflated archive
	entries int   // in the archive, and folders on the disk
}

// defaultLimits are the limits of all sources.
var defaultLimits = archiveLimits{bytes: 256 << 20, entries: 50_000}

// unpacker writes the entries of an archive below a directory. Links and special files are errors, and so are paths
// that lead elsewhere or that occur twice.
type unpacker struct {
	root    *os.Root
	limits  archiveLimits
	strip   bool   // without the first folder of each path, which all entries have in common
	top     string // that folder
	folders map[string]bool
	entries int
	left    int64 // bytes
}

// unpack unpacks a tar archive that is compressed with gzip into a directory. With strip, the archive contains one
// folder, as charts do, and the files of that folder are written.
func unpack(ctx context.Context, compressed io.Reader, dir string, strip bool, limits archiveLimits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	inflated, err := gzip.NewReader(compressed)
	if err != nil {
		return fmt.Errorf("the archive is not compressed with gzip: %w", err)
	}
	archive := tar.NewReader(&limitedReader{r: inflated, left: limits.bytes,
		err: fmt.Errorf("the archive inflates to more than %d bytes", limits.bytes)})
	u := &unpacker{root: root, limits: limits, strip: strip, folders: map[string]bool{".": true}, left: limits.bytes}
	files := 0
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if u.entries++; u.entries > limits.entries {
			return fmt.Errorf("the archive has more than %d entries", limits.entries)
		}
		isFile, err := u.add(h, archive)
		if err != nil {
			return err
		}
		if isFile {
			files++
		}
	}
	if files == 0 {
		return errors.New("the archive has no files")
	}
	return nil
}

// add writes an entry. It reports whether the entry is a file.
func (u *unpacker) add(h *tar.Header, content io.Reader) (isFile bool, err error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeXGlobalHeader:
		return false, nil
	case tar.TypeSymlink, tar.TypeLink:
		return false, fmt.Errorf("the archive's entry %.200q is a link, which is not followed", h.Name)
	default:
		return false, fmt.Errorf("the archive's entry %.200q is neither a file nor a folder", h.Name)
	}
	name, err := u.nameOf(h)
	if err != nil || name == "." {
		return false, err
	}
	if h.Typeflag == tar.TypeDir {
		return false, u.makeFolder(name)
	}
	if err := u.makeFolder(path.Dir(name)); err != nil {
		return false, err
	}
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("the archive has two entries with the name %.200q", h.Name)
	}
	if err != nil {
		return false, err
	}
	n, err := io.Copy(file, io.LimitReader(content, u.left+1)) // the size in the header can be that of a sparse file
	if err := errors.Join(err, file.Close()); err != nil {
		return false, fmt.Errorf("unpack %.200q: %w", h.Name, err)
	}
	if u.left -= n; u.left < 0 {
		return false, fmt.Errorf("the files of the archive have more than %d bytes", u.limits.bytes)
	}
	return true, nil
}

// nameOf returns the path of an entry, or "." for the root.
func (u *unpacker) nameOf(h *tar.Header) (string, error) {
	name := strings.TrimPrefix(h.Name, "./")
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	if name == "" && h.Typeflag == tar.TypeDir {
		name = "."
	}
	if len(name) > maxArchiveName || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") ||
		strings.Count(name, "/") >= maxArchiveDepth {
		return "", fmt.Errorf("the archive has an entry with the name %.200q, which is no path below its root", h.Name)
	}
	if !u.strip || name == "." {
		return name, nil
	}
	top, rest, ok := strings.Cut(name, "/")
	if u.top == "" {
		u.top = top
	}
	switch {
	case top != u.top || !ok && h.Typeflag != tar.TypeDir:
		return "", fmt.Errorf("the archive's entry %.200q is outside of the chart's folder", h.Name)
	case !ok:
		return ".", nil
	}
	return rest, nil
}

// makeFolder makes a folder and its parents.
func (u *unpacker) makeFolder(name string) error {
	if u.folders[name] {
		return nil
	}
	if err := u.makeFolder(path.Dir(name)); err != nil {
		return err
	}
	if len(u.folders) >= u.limits.entries {
		return fmt.Errorf("the archive has more than %d folders", u.limits.entries)
	}
	if err := u.root.Mkdir(name, 0o700); err != nil {
		return fmt.Errorf("the archive has a file and a folder with the name %.200q", name)
	}
	u.folders[name] = true
	return nil
}
