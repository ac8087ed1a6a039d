// Package bundle provides the files of a release that machines receive: the programs beside the running one, their
// digests, and their compressed forms, which are cached. Package role decides where the programs go on a machine.
package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"clusterctl/daemons/version"
	"clusterctl/provision/host"
	"clusterctl/provision/image"
)

// Names of the programs that machines receive.
const (
	Clusterctl = "clusterctl"
	Etcd       = "etcd"
	Containerd = "containerd"
	Shim       = "containerd-shim-runc-v2"
	Runc       = "runc"
	Pause      = "pause"
	GitOps     = "gitops-controller" // only on control planes whose configuration declares GitSources
)

// Podlink is the CNI plugin of the pod network. CNI lists the other plugins, which distributions also provide.
const Podlink = "podlink"

// CNI lists the standard CNI plugins in a bundle.
var CNI = []string{"bandwidth", "host-local", "loopback", "portmap"}

// Programs returns the names of all programs in a bundle.
func Programs() []string {
	return append([]string{Clusterctl, Etcd, Containerd, Shim, Runc, Pause, GitOps, Podlink}, CNI...)
}

// PauseReference is the image of the containers that hold pods' namespaces.
const PauseReference = "clusterctl.local/pause:1"

// Images of the control plane's programs, for static pods. They are built on first use.
const (
	ControlPlaneImage = "clusterctl.local/control-plane"
	EtcdImage         = "clusterctl.local/etcd"
)

// imagePrograms maps images to their program and to the links to it.
var imagePrograms = map[string]struct {
	program string
	links   []string
}{
	ControlPlaneImage: {
		Clusterctl,
		[]string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "metrics-server"},
	},
	EtcdImage: {Etcd, nil},
}

// Reference returns the image reference to use in pods for an image that was built here. It changes with the content.
func Reference(f File) string { return f.Name + ":" + f.Digest[:min(len(f.Digest), 16)] }

// File is a file that can be sent.
type File struct {
	Name   string
	Path   string // on this computer
	Digest string // SHA-256, hex
	Size   int64
}

// Bundle is a release's files.
type Bundle struct {
	Version    string // version of clusterctl
	Kubernetes string
	// OnCompress, if not nil, is called before a file is compressed. Compression takes seconds.
	OnCompress func(File)

	cacheDir  string
	packedDir string // directory beside the programs in which Pack stores their compressed forms
	files     map[string]File

	mu            sync.Mutex
	digests       map[string]cachedDigest // by path; cached between runs
	compressLocks map[string]*sync.Mutex
}

type cachedDigest struct {
	Size   int64  `json:"size"`
	Time   int64  `json:"time"`
	Digest string `json:"digest"`
}

// Open opens the bundle beside the program at executable. It keeps compressed forms and digests in the directory cache.
func Open(executable, cache string) (*Bundle, error) {
	b := &Bundle{
		Version:       version.Version,
		Kubernetes:    version.Kubernetes,
		cacheDir:      cache,
		files:         map[string]File{},
		digests:       map[string]cachedDigest{},
		compressLocks: map[string]*sync.Mutex{},
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	if text, err := os.ReadFile(b.digestsPath()); err == nil {
		_ = json.Unmarshal(text, &b.digests) // a damaged cache is computed again
	}
	dir := filepath.Dir(executable)
	b.packedDir = filepath.Join(dir, "packed")
	if err := b.add(Clusterctl, executable); err != nil {
		return nil, err
	}
	for _, name := range append([]string{Etcd, Containerd, Shim, Runc, Pause, GitOps, Podlink}, CNI...) {
		for _, path := range []string{filepath.Join(dir, name), filepath.Join(dir, "cni", name)} {
			if _, err := os.Stat(path); err == nil {
				if err := b.add(name, path); err != nil {
					return nil, err
				}
				break
			}
		}
	}
	if err := b.addPauseImage(); err != nil {
		return nil, err
	}
	return b, b.saveDigests()
}

// File returns a file by its name.
func (b *Bundle) File(name string) (File, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.files[name]
	if made, image := imagePrograms[name]; image && !ok {
		if err := b.makeImage(name, made.program, made.links); err != nil {
			return File{}, err
		}
		f, ok = b.files[name]
	}
	if !ok {
		return File{}, fmt.Errorf(
			"%s is not beside clusterctl: the bundle is incomplete (make build puts all of it in bin/)", name)
	}
	return f, nil
}

// Release returns the release of the bundle.
func (b *Bundle) Release() host.Release {
	b.mu.Lock()
	defer b.mu.Unlock()
	digest := b.files[Clusterctl].Digest
	return host.Release{Version: b.Version, Kubernetes: b.Kubernetes, Build: digest[:min(len(digest), 12)]}
}

// Add adds a file that is not part of the release, such as an image archive.
func (b *Bundle) Add(name, path string) (File, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.add(name, path); err != nil {
		return File{}, err
	}
	return b.files[name], b.saveDigests()
}

// ByDigest returns a file by the sha256 of its content.
func (b *Bundle) ByDigest(digest string) (File, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.files {
		if f.Digest == digest {
			return f, true
		}
	}
	return File{}, false
}

func (b *Bundle) digestsPath() string { return filepath.Join(b.cacheDir, "digests.json") }

func (b *Bundle) add(name, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	cached, ok := b.digests[path]
	if !ok || cached.Size != info.Size() || cached.Time != info.ModTime().UnixNano() {
		digest, err := digestOf(path)
		if err != nil {
			return err
		}
		cached = cachedDigest{Size: info.Size(), Time: info.ModTime().UnixNano(), Digest: digest}
		b.digests[path] = cached
	}
	b.files[name] = File{Name: name, Path: path, Digest: cached.Digest, Size: cached.Size}
	return nil
}

// addPauseImage builds the pause image's archive from the program.
func (b *Bundle) addPauseImage() error {
	if _, ok := b.files[Pause]; !ok {
		return nil // reported when a role needs it
	}
	return b.buildArchive(PauseReference, Pause, "/pause")
}

// makeImage builds the archive of a control-plane image.
func (b *Bundle) makeImage(name, program string, links []string) error {
	at := "/usr/local/bin/" + program
	var more []image.File
	for _, l := range links {
		more = append(more, image.File{Path: "/usr/local/bin/" + l, Mode: 0o777, Link: program})
	}
	if err := b.buildArchive(name, program, at, more...); err != nil {
		return err
	}
	return b.saveDigests()
}

// buildArchive builds an image of a program, unless it is in the cache.
func (b *Bundle) buildArchive(name, program, at string, more ...image.File) error {
	from, ok := b.files[program]
	if !ok {
		return fmt.Errorf("%s is not beside clusterctl: the bundle is incomplete (make build puts all of it in bin/)",
			program)
	}
	path := filepath.Join(b.cacheDir, filepath.Base(name)+"-"+from.Digest[:16]+".tar")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		content, err := os.ReadFile(from.Path)
		if err != nil {
			return err
		}
		archive, err := image.Write(runtime.GOARCH, []string{at},
			append([]image.File{{Path: at, Mode: 0o755, Content: content}}, more...)...)
		if err != nil {
			return fmt.Errorf("make the image %s: %w", name, err)
		}
		if err := replaceFile(path, archive); err != nil {
			return err
		}
	}
	return b.add(name, path)
}

func (b *Bundle) saveDigests() error {
	text, err := json.Marshal(b.digests)
	if err != nil {
		return err
	}
	return replaceFile(b.digestsPath(), text)
}

func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
