// Package hostfake simulates a machine in memory: files, units that start and restart, images, and etcd members. Tests
// of the packages above host use it.
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

// Host is a fake machine. The zero value is a new machine.
type Host struct {
	Machine      host.Facts
	Store        *Etcd            // shared by the machines of one cluster
	StartErrors  map[string]error // by unit: the error of starting it
	AnswerErrors map[string]error // by URL: the error of a request to a daemon
	// AnswerError returns the error of a request to another machine's daemon, for URLs that are not in AnswerErrors.
	AnswerError func(url string) error
	OnStart     func(unit string) // called before a unit starts
	OnRequest   func(url string)  // called before a request to a daemon of this machine
	// RunProgram simulates a program that a unit starts. It returns an error if the program does not start. It calls
	// ended if the program dies later.
	RunProgram func(ctx context.Context, unit, program string, ended func()) error
	Log        []string // the operations, as "start etcd.service" or "write /etc/x"
	// BeforeChange is called before each operation that writes a file or changes a unit. The operation fails with its
	// error.
	BeforeChange func(what string) error

	Debian *Debian             // its packages; nil means that it has no package manager
	Reboot func(h *Host) error // called on a reboot, after files in memory have been removed

	// answers of the program etcd; nil means that no store answers
	AnswerStore  func(store.Request) (store.Answer, error)
	RestoreError error // error of making a member from a snapshot

	hostLock sync.Mutex // held by the caller that Lock has returned to

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

func (h *Host) beforeChange(format string, args ...any) error {
	if h.BeforeChange == nil {
		return nil
	}
	return h.BeforeChange(fmt.Sprintf(format, args...))
}

func (h *Host) record(format string, args ...any) {
	h.Log = append(h.Log, fmt.Sprintf(format, args...))
}

// Facts returns Machine, completed with facts that depend on the files.
func (h *Host) Facts(context.Context) (host.Facts, error) {
	f := h.Machine
	f.ClusterCA, f.SecretDigests, f.Boot = host.ClusterCA(h), host.ReadSecretDigests(h), host.CurrentBootID(h)
	f.HasEtcdData, f.EtcdCluster = host.EtcdFacts(h)
	f.Release, f.UnconfirmedRelease = host.Releases(h)
	return f, nil
}

// Lock waits until no other caller holds the lock.
func (h *Host) Lock(ctx context.Context) (func(), error) {
	for !h.hostLock.TryLock() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return h.hostLock.Unlock, nil
}

// Stat describes a file.
func (h *Host) Stat(p string) (host.Info, error) {
	defer h.lock()()
	if f, ok := h.files[p]; ok {
		return f.info, nil
	}
	below := p + "/"
	for name := range h.files {
		if strings.HasPrefix(name, below) { // an implicitly created parent directory
			return host.Info{Mode: fs.ModeDir | 0o755}, nil
		}
	}
	return host.Info{}, &fs.PathError{Op: "stat", Path: p, Err: fs.ErrNotExist}
}

// ReadFile returns a file's content, and follows links.
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
		err = h.beforeChange("write %s", p)
	}
	if err != nil {
		return err
	}
	defer h.lock()()
	h.record("write %s", p)
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
	h.record("mkdir %s", p)
	h.files[p] = file{info: host.Info{Mode: fs.ModeDir | mode.Perm()}}
	return nil
}

// Symlink makes a link.
func (h *Host) Symlink(target, p string) error {
	defer h.lock()()
	h.record("link %s", p)
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

// RemoveAll removes a file or a tree. Mount points and their parents cannot be removed.
func (h *Host) RemoveAll(p string) error {
	defer h.lock()()
	h.record("remove %s", p)
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

// Run simulates sysctl -w, systemctl reboot and the package manager, as far as steps use them.
func (h *Host) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	defer h.lock()()
	h.record("%s %s", name, strings.Join(args, " "))
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

// RunStore answers with AnswerStore.
func (h *Host) RunStore(_ context.Context, _, request string) ([]byte, error) {
	var q store.Request
	if err := json.Unmarshal([]byte(request), &q); err != nil {
		return nil, err
	}
	unlock := h.lock()
	h.record("store %s", q.Op)
	unlock()
	if q.Op == store.Restore && h.RestoreError != nil {
		return nil, h.RestoreError
	}
	if q.Op == store.Restore {
		unlock := h.lock()
		defer unlock()
		return []byte("{}"), h.restoreMember(q)
	}
	if h.AnswerStore == nil {
		return nil, errors.New("no etcd answers")
	}
	a, err := h.AnswerStore(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// ImportImage records the image's name.
func (h *Host) ImportImage(_ context.Context, name string, archive io.Reader) error {
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return err
	}
	defer h.lock()()
	h.record("import %s", name)
	h.images[name] = true
	return nil
}

// HasImage reports whether the image was imported.
func (h *Host) HasImage(_ context.Context, name string) (bool, error) {
	defer h.lock()()
	return h.images[name], nil
}

// FailPeers makes requests to daemons of other machines fail from now on, by their URLs, also for callers that are
// already waiting.
func (h *Host) FailPeers(errs map[string]error) {
	defer h.lock()()
	h.AnswerErrors = errs
}

// Operations returns a copy of Log.
func (h *Host) Operations() []string {
	defer h.lock()()
	return slices.Clone(h.Log)
}

// HealPeers makes all daemons of other machines healthy from now on, also for callers that are already waiting.
func (h *Host) HealPeers() {
	defer h.lock()()
	h.AnswerErrors = nil
}

// CheckURL behaves as if the kubelet had started every static pod whose manifest contains the URL's port. Other
// machines are healthy, except for the errors of AnswerErrors and AnswerError.
func (h *Host) CheckURL(_ context.Context, address string, _ host.Client) error {
	at, err := url.Parse(address)
	if err != nil {
		return err
	}
	if h.OnRequest != nil {
		h.OnRequest(address)
	}
	if at.Hostname() != "127.0.0.1" {
		return h.answerError(address)
	}
	if unit, active := h.unitOfPort(at.Port()); unit && !active {
		return fmt.Errorf("ask %s: %w", address, host.ErrNothingListens)
	} else if unit {
		return h.answerError(address)
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

// unitOfPort reports whether a port belongs to a unit of this machine, and whether that unit is active.
func (h *Host) unitOfPort(port string) (unit, active bool) {
	defer h.lock()()
	n, err := strconv.Atoi(port)
	if err != nil {
		return false, false
	}
	name := host.DaemonPorts[n]
	if port == "10254" {
		name = "kube-address"
	}
	u, ok := h.units[name+".service"]
	_, file := h.files[unitDir+name+".service"]
	return ok && file, u.Active == "active"
}

// answerError returns the error of asking the daemon at a URL.
func (h *Host) answerError(address string) error {
	err := func() error {
		defer h.lock()()
		return h.AnswerErrors[address]
	}()
	if err == nil && h.AnswerError != nil {
		err = h.AnswerError(address)
	}
	return err
}

// Containers returns 0.
func (h *Host) Containers(context.Context) (int, error) { return 0, nil }

// StopContainers has nothing to stop.
func (h *Host) StopContainers(context.Context) error { return nil }

// Mount simulates a mount at a path, such as the kubelet's mount of a pod's volume.
func (h *Host) Mount(p string) {
	defer h.lock()()
	h.files[p] = file{info: host.Info{Mode: fs.ModeDir | 0o755}}
	h.mounts = append(h.mounts, p)
}

// Mounts returns the paths mounted by Mount that start with one of the prefixes.
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

// Unmount undoes Mount.
func (h *Host) Unmount(prefixes ...string) error {
	defer h.lock()()
	h.mounts = slices.DeleteFunc(h.mounts, func(m string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m, p) })
	})
	return nil
}

// Network returns nothing, because the fake has no network.
func (h *Host) Network(context.Context, host.Network) ([]string, error) { return nil, nil }

// ClearNetwork has nothing to remove.
func (h *Host) ClearNetwork(context.Context, host.Network) error { return nil }

// Trace sees no packets, because there is no network.
func (h *Host) Trace(_ context.Context, q host.Trace, started func()) (host.Traced, error) {
	started()
	if q.Send {
		return host.Traced{Outcome: host.OutcomeFailed, Reason: "network is unreachable"}, nil
	}
	return host.Traced{}, nil
}

// Etcd returns the store that the machines share, if the test has set one.
func (h *Host) Etcd(_ context.Context, endpoints []string, _, _, _ string) (host.Etcd, error) {
	if err := h.answerError(endpoints[0]); err != nil {
		return nil, err
	}
	if h.Store == nil {
		return nil, fmt.Errorf("no etcd answers")
	}
	return h.Store, nil
}
