// Package hostfake is a machine in memory that behaves: files, units that start and
// restart, images, an etcd membership. Tests of everything above a machine run on it.
package hostfake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/host"
)

// Host is a fake machine. The zero value is a fresh one.
type Host struct {
	Machine host.Facts
	Store   *Etcd                  // shared by the machines of one cluster
	Fail    map[string]error       // by unit: what starting it gives
	Sick    map[string]error       // by URL: what asking a daemon gives
	Ill     func(url string) error // what asking another machine's daemon gives, where Sick says nothing
	Starts  func(unit string)      // called before a unit starts
	Asked   func(url string)       // called when a daemon of this machine is asked
	// Runs is what comes of a program that a unit starts: an error where it does not start, or dies when ended is
	// called.
	Runs func(ctx context.Context, unit, program string, ended func()) error
	Log  []string // what was done: "start etcd.service", "write /etc/x"…
	// Before is called with each of those that writes a file or makes a unit something else; its error is what comes of
	// it.
	Before func(what string) error

	Debian *Debian             // its packages; nil: it has no package manager
	Reboot func(h *Host) error // called when it is told to reboot, once what does not outlive that is gone

	Stored    func(store.Request) (store.Answer, error) // what the program etcd answers; nil: that no store does
	StoreFail error                                     // what making a member of a snapshot gives

	alone sync.Mutex // of whom Alone has returned to

	mu     sync.Mutex
	files  map[string]file
	units  map[string]host.Unit
	images map[string]bool
	mounts []string

	processes uint32
	boots     int
}

type file struct {
	info    host.Info
	content []byte
}

var _ host.Host = (*Host)(nil)

func (h *Host) lock() func() {
	h.mu.Lock()
	if h.files == nil {
		h.files, h.units, h.images = map[string]file{}, map[string]host.Unit{}, map[string]bool{}
	}
	return h.mu.Unlock
}

func (h *Host) before(format string, args ...any) error {
	if h.Before == nil {
		return nil
	}
	return h.Before(fmt.Sprintf(format, args...))
}

func (h *Host) did(format string, args ...any) { h.Log = append(h.Log, fmt.Sprintf(format, args...)) }

// Facts returns Machine, and whether etcd has run.
func (h *Host) Facts(context.Context) (host.Facts, error) {
	f := h.Machine
	f.ClusterCA, f.Given, f.Boot = host.ClusterCA(h), host.GivenTo(h), host.Boot(h)
	f.EtcdData, f.EtcdCluster = host.EtcdFacts(h)
	f.Release, f.Tried = host.Releases(h)
	return f, nil
}

// Alone waits for who is.
func (h *Host) Alone(ctx context.Context) (func(), error) {
	for !h.alone.TryLock() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return h.alone.Unlock, nil
}

// Stat describes a file.
func (h *Host) Stat(p string) (host.Info, error) {
	defer h.lock()()
	if f, ok := h.files[p]; ok {
		return f.info, nil
	}
	below := p + "/"
	for name := range h.files {
		if strings.HasPrefix(name, below) { // a parent made along the way
			return host.Info{Mode: fs.ModeDir | 0o755}, nil
		}
	}
	return host.Info{}, &fs.PathError{Op: "stat", Path: p, Err: fs.ErrNotExist}
}

// ReadFile returns a file's content, links followed.
func (h *Host) ReadFile(p string) ([]byte, error) {
	defer h.lock()()
	f, ok := h.files[p]
	for ok && f.info.Target != "" {
		f, ok = h.files[f.info.Target]
	}
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return bytes.Clone(f.content), nil
}

// Open opens a file.
func (h *Host) Open(p string) (io.ReadCloser, error) {
	content, err := h.ReadFile(p)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// WriteFile replaces a file.
func (h *Host) WriteFile(p string, content io.Reader, mode fs.FileMode, uid, gid int) error {
	text, err := io.ReadAll(content)
	if err == nil {
		err = h.before("write %s", p)
	}
	if err != nil {
		return err
	}
	defer h.lock()()
	h.did("write %s", p)
	h.files[p] = file{host.Info{Mode: mode.Perm(), UID: uid, GID: gid, Size: int64(len(text))}, text}
	return nil
}

// Chmod sets permissions and owner.
func (h *Host) Chmod(p string, mode fs.FileMode, uid, gid int) error {
	defer h.lock()()
	f, ok := h.files[p]
	if !ok {
		return &fs.PathError{Op: "chmod", Path: p, Err: fs.ErrNotExist}
	}
	f.info.Mode = f.info.Mode.Type() | mode.Perm()
	f.info.UID, f.info.GID = uid, gid
	h.files[p] = f
	return nil
}

// Mkdir makes a directory.
func (h *Host) Mkdir(p string, mode fs.FileMode) error {
	defer h.lock()()
	h.did("mkdir %s", p)
	h.files[p] = file{info: host.Info{Mode: fs.ModeDir | mode.Perm()}}
	return nil
}

// Symlink makes a link.
func (h *Host) Symlink(target, p string) error {
	defer h.lock()()
	h.did("link %s", p)
	h.files[p] = file{info: host.Info{Mode: fs.ModeSymlink | 0o777, Target: target}}
	return nil
}

// Rename moves a file.
func (h *Host) Rename(from, to string) error {
	defer h.lock()()
	found := false
	for name, f := range maps.Clone(h.files) {
		if rest, of := strings.CutPrefix(name, from); of && (rest == "" || rest[0] == '/') {
			delete(h.files, name)
			h.files[to+rest] = f
			found = true
		}
	}
	if !found {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	return nil
}

// RemoveAll removes a file or a tree. A mount point cannot be removed, nor what leads to it.
func (h *Host) RemoveAll(p string) error {
	defer h.lock()()
	h.did("remove %s", p)
	for name := range h.files {
		if (name == p || strings.HasPrefix(name, p+"/")) && !slices.Contains(h.mounts, name) {
			delete(h.files, name)
		}
	}
	for _, m := range h.mounts {
		if m == p || strings.HasPrefix(m, p+"/") {
			return &fs.PathError{Op: "unlinkat", Path: m, Err: syscall.EBUSY}
		}
	}
	return nil
}

// List returns the names in a directory.
func (h *Host) List(dir string) ([]string, error) {
	defer h.lock()()
	var names []string
	below := dir + "/"
	for name := range h.files {
		if rest, ok := strings.CutPrefix(name, below); ok {
			first, _, _ := strings.Cut(rest, "/")
			if !slices.Contains(names, first) {
				names = append(names, first)
			}
		}
	}
	if _, ok := h.files[dir]; !ok && names == nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	sort.Strings(names)
	return names, nil
}

// Files returns the paths of all files, sorted.
func (h *Host) Files() []string {
	defer h.lock()()
	var paths []string
	for p, f := range h.files {
		if !f.info.Mode.IsDir() {
			paths = append(paths, p)
		}
	}
	sort.Strings(paths)
	return paths
}

// Run knows sysctl -w, as far as steps use it.
func (h *Host) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	defer h.lock()()
	h.did("%s %s", name, strings.Join(args, " "))
	switch {
	case name == "sysctl" && len(args) > 0:
		key, value, _ := strings.Cut(args[len(args)-1], "=")
		p := path.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
		h.files[p] = file{host.Info{Mode: 0o644}, []byte(value + "\n")}
	case name == "systemctl" && slices.Equal(args, []string{"reboot"}):
		return nil, h.reboot()
	case h.Debian != nil:
		return h.Debian.run(h, name, args)
	}
	return nil, nil
}

// RunStore has the test answer.
func (h *Host) RunStore(_ context.Context, _, request string) ([]byte, error) {
	var q store.Request
	if err := json.Unmarshal([]byte(request), &q); err != nil {
		return nil, err
	}
	unlock := h.lock()
	h.did("store %s", q.Op)
	unlock()
	if q.Op == store.Restore && h.StoreFail != nil {
		return nil, h.StoreFail
	}
	if q.Op == store.Restore {
		unlock := h.lock()
		defer unlock()
		return []byte("{}"), h.restored(q)
	}
	if h.Stored == nil {
		return nil, errors.New("no etcd answers")
	}
	a, err := h.Stored(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// ImportImage notes the image's name.
func (h *Host) ImportImage(_ context.Context, name string, archive io.Reader) error {
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return err
	}
	defer h.lock()()
	h.did("import %s", name)
	h.images[name] = true
	return nil
}

// HasImage reports whether it was imported.
func (h *Host) HasImage(_ context.Context, name string) (bool, error) {
	defer h.lock()()
	return h.images[name], nil
}

// Heal has all daemons of other machines answer well from here on, also to who asks already.
func (h *Host) Heal() {
	defer h.lock()()
	h.Sick = nil
}

// Answers as if the kubelet had started every static pod whose manifest has the URL's port. Other machines
// are well but for what the test says.
func (h *Host) Answers(_ context.Context, address string, _ host.Client) error {
	at, err := url.Parse(address)
	if err != nil {
		return err
	}
	if h.Asked != nil {
		h.Asked(address)
	}
	if at.Hostname() != "127.0.0.1" {
		return h.ill(address)
	}
	if unit, active := h.serves(at.Port()); unit && !active {
		return fmt.Errorf("ask %s: %w", address, host.ErrNothingListens)
	} else if unit {
		return h.ill(address)
	}
	names, err := h.List("/etc/kubernetes/manifests")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if text, err := h.ReadFile("/etc/kubernetes/manifests/" + name); err == nil &&
			strings.Contains(strings.ToLower(string(text)), "port: "+at.Port()+"\n") {
			return nil
		}
	}
	return fmt.Errorf("ask %s: %w", address, host.ErrNothingListens)
}

// serves reports whether a port of the machine's own is a unit's, and that runs.
func (h *Host) serves(port string) (unit, active bool) {
	defer h.lock()()
	n, err := strconv.Atoi(port)
	if err != nil {
		return false, false
	}
	name := host.Ports[n]
	if port == "10254" {
		name = "kube-address"
	}
	u, there := h.units[name+".service"]
	_, file := h.files[unitDir+name+".service"]
	return there && file, u.Active == "active"
}

// ill says how a daemon of another machine is.
func (h *Host) ill(address string) error {
	err := func() error {
		defer h.lock()()
		return h.Sick[address]
	}()
	if err == nil && h.Ill != nil {
		err = h.Ill(address)
	}
	return err
}

// Containers is none.
func (h *Host) Containers(context.Context) (int, error) { return 0, nil }

// StopContainers has nothing to stop.
func (h *Host) StopContainers(context.Context) error { return nil }

// Mount mounts something at a path, as the kubelet does for a pod's volume.
func (h *Host) Mount(p string) {
	defer h.lock()()
	h.files[p] = file{info: host.Info{Mode: fs.ModeDir | 0o755}}
	h.mounts = append(h.mounts, p)
}

// Mounts returns what Mount has mounted at paths that start so.
func (h *Host) Mounts(prefixes ...string) ([]string, error) {
	defer h.lock()()
	var paths []string
	for _, m := range h.mounts {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m, p) }) {
			paths = append(paths, m)
		}
	}
	return paths, nil
}

// Unmount is Mount's inverse.
func (h *Host) Unmount(prefixes ...string) error {
	defer h.lock()()
	h.mounts = slices.DeleteFunc(h.mounts, func(m string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m, p) })
	})
	return nil
}

// Network has none of it.
func (h *Host) Network(context.Context, host.Network) ([]string, error) { return nil, nil }

// ClearNetwork has nothing to remove.
func (h *Host) ClearNetwork(context.Context, host.Network) error { return nil }

// Trace sees nothing: there is no network.
func (h *Host) Trace(_ context.Context, q host.Trace, begun func()) (host.Traced, error) {
	begun()
	if q.Send {
		return host.Traced{Outcome: host.OutcomeFailed, Reason: "network is unreachable"}, nil
	}
	return host.Traced{}, nil
}

// Etcd is the store that the machines share, when a test has made one.
func (h *Host) Etcd(_ context.Context, endpoints []string, _, _, _ string) (host.Etcd, error) {
	if err := h.ill(endpoints[0]); err != nil {
		return nil, err
	}
	if h.Store == nil {
		return nil, fmt.Errorf("no etcd answers")
	}
	return h.Store, nil
}
