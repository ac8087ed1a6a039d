// Package machines creates real machines on one host: systemd-nspawn containers that boot systemd, run sshd and have an
// address each, on a bridge in their own network namespace. Faults are functions. Everything that the tool does to
// machines is tested on them. The package needs Linux, root, and the Debian packages that Require names. It does not
// depend on anything of clusters.
package machines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options are the options of Up.
type Options struct {
	Name string // identifies the lab; lower-case letters, digits and dashes, at most 20
	// name or name=address. Names have at most 11 characters. Addresses are 10.99.0.11 and following unless given. An
	// address in another 10.99.N.0/24 is behind a router.
	Machines []string
	Log      io.Writer // progress; nil: none
	Disk     int64     // bytes of each machine's disk; zero: the machine shares the host's
	// Files are files that all machines have from the start: paths on the machine to files of this host. Their content
	// must not change while the lab exists. Reinstalled machines do not have them.
	Files map[string]string
}

// Lab is a set of running machines.
type Lab struct {
	Name     string
	Machines []*Machine
}

const labsDir = "/var/lib/clusterctl-lab"

// labSegment is one of the networks of a lab. Each has a bridge. The lab's network namespace has an address in each,
// and is the router between them. Each lab has its own namespace, so labs do not conflict.
type labSegment int

func segmentOf(address string) labSegment {
	ip, _ := netip.ParseAddr(address)
	if !ip.Is4() {
		return 0
	}
	return labSegment(ip.As4()[2])
}

// network returns 10.99.0.1/24 or 10.99.N.1/24.
func (s labSegment) network() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(s), 1}), 24)
}

// network6 returns the network of the machines' IPv6 addresses: fd00:99::1/64 or fd00:99:N::1/64.
func (s labSegment) network6() netip.Prefix {
	if s == 0 {
		return netip.MustParsePrefix("fd00:99::1/64")
	}
	return netip.MustParsePrefix(fmt.Sprintf("fd00:99:%d::1/64", int(s)))
}

func (s labSegment) bridge() string { return fmt.Sprintf("br%d", int(s)) }

// IPv6Of returns the IPv6 address of a machine by its IPv4 address: fd00:99::21 for 10.99.0.21.
func IPv6Of(address string) string {
	return strings.TrimSuffix(segmentOf(address).network6().Addr().String(),
		"1") + address[strings.LastIndexByte(address, '.')+1:]
}

// ErrMissing reports that the host lacks something that labs need.
var ErrMissing = errors.New("missing on this host")

// Require returns an error that names what the host lacks and how to install it.
func Require() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("root: %w; run it with sudo", ErrMissing)
	}
	var missing []string
	for command, pkg := range map[string]string{
		"mmdebstrap": "mmdebstrap", "systemd-nspawn": "systemd-container", "ip": "iproute2",
		"ssh": "openssh-client", "nsenter": "util-linux", "mkfs.ext4": "e2fsprogs",
	} {
		if _, err := exec.LookPath(command); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s: %w; run: apt-get install %s", strings.Join(missing, ", "), ErrMissing,
			strings.Join(missing, " "))
	}
	return nil
}

// StartMachines builds the root file system if it does not exist, and creates and boots the machines in parallel. It
// returns when all of them accept SSH connections. If it fails, it removes everything that it created.
func StartMachines(ctx context.Context, o Options) (lab *Lab, err error) {
	if err := Require(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	lab = &Lab{Name: o.Name}
	if _, err := os.Stat(lab.dir()); err == nil {
		return nil, fmt.Errorf("lab %s exists already: take it down first", o.Name)
	}
	base, err := rootFS(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	if err := raiseInotify(); err != nil {
		return nil, err
	}
	created := lab // a return with an error sets lab to nil
	defer func() {
		if err != nil {
			err = errors.Join(err, created.Down(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(filepath.Join(lab.Home(), ".ssh"), 0o700); err != nil {
		return nil, err
	}
	if err := lab.makeKeys(); err != nil {
		return nil, err
	}
	if base, err = lab.addFiles(base, o.Files); err != nil {
		return nil, err
	}
	segments := []labSegment{0}
	for _, entry := range o.Machines {
		if _, given, _ := strings.Cut(entry, "="); !slices.Contains(segments, segmentOf(given)) {
			segments = append(segments, segmentOf(given))
		}
	}
	if err := lab.makeNetwork(ctx, segments); err != nil {
		return nil, err
	}
	if err := lab.createMachines(ctx, o, base); err != nil {
		return nil, err
	}
	if err := lab.save(); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, m := range lab.Machines {
		g.Go(func() error { return m.Start(gctx) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "lab %s: %d machines are up\n", lab.Name, len(lab.Machines))
	return lab, nil
}

// createMachines creates the machines and their disks, which are overlays over base.
func (l *Lab) createMachines(ctx context.Context, o Options, base string) error {
	address := labSegment(0).network().Addr()
	for range 10 {
		address = address.Next()
	}
	for _, entry := range o.Machines {
		name, given, ok := strings.Cut(entry, "=")
		m := &Machine{lab: l, Name: name, Address: given}
		if !ok {
			m.Address, address = address.String(), address.Next()
		}
		l.Machines = append(l.Machines, m)
		if err := m.create(ctx, base, o.Disk); err != nil {
			return fmt.Errorf("create machine %s: %w", name, err)
		}
	}
	return nil
}

// inotifyInstances is the number of inotify instances that the host's root user may have, which is enough for several
// labs. Each systemd, containerd and kubelet of every machine has some, and many hosts allow 128 in all.
const inotifyInstances = 1024

// raiseInotify raises the host's limit to inotifyInstances if it is lower. A host that does not allow this keeps its
// limit, which is enough for one small lab.
func raiseInotify() error {
	const path = "/proc/sys/fs/inotify/max_user_instances"
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the limit of inotify instances: %w", err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read the limit of inotify instances: %w", err)
	}
	if limit >= inotifyInstances {
		return nil
	}
	err = os.WriteFile(path, strconv.AppendInt(nil, inotifyInstances, 10), 0)
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("raise the limit of inotify instances: %w", err)
	}
	return nil
}

// Open returns a lab that an earlier process created.
func Open(name string) (*Lab, error) {
	lab := &Lab{Name: name}
	text, err := os.ReadFile(filepath.Join(lab.dir(), "lab.json"))
	if err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	if err := json.Unmarshal(text, lab); err != nil {
		return nil, fmt.Errorf("open lab %s: %w", name, err)
	}
	for _, m := range lab.Machines {
		m.lab = lab
	}
	return lab, nil
}

// CacheDir contains the machines' root file system, which rootfs.sh builds once and keeps.
const CacheDir = "/var/cache/clusterctl-lab"

// Down ends every machine and removes everything that Up created, except CacheDir.
func (l *Lab) Down(ctx context.Context) error {
	var errs []error
	for _, m := range l.Machines {
		errs = append(errs, m.PowerCut(ctx))
	}
	for _, m := range l.Machines {
		errs = append(errs, m.remove())
	}
	errs = append(errs, l.removeCgroups())
	if _, err := os.Stat(l.netns()); err == nil {
		errs = append(errs, runCommand(ctx, "ip", "netns", "del", "lab-"+l.Name))
	}
	errs = append(errs, os.RemoveAll(l.dir()))
	_ = os.Remove(labsDir) // succeeds for the last lab
	return errors.Join(errs...)
}

// Machine returns the machine with a name, or nil.
func (l *Lab) Machine(name string) *Machine {
	for _, m := range l.Machines {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// Key returns the path of the private SSH key that every machine accepts for root, admin and guest. admin may use sudo
// with the password "admin", and guest may not use sudo.
func (l *Lab) Key() string { return filepath.Join(l.Home(), ".ssh", "id_ed25519") }

// KnownHosts returns the path of a known_hosts file with every machine's key.
func (l *Lab) KnownHosts() string { return filepath.Join(l.Home(), ".ssh", "known_hosts") }

// Home returns a home directory with that key and those known hosts, for programs that read them from the home
// directory.
func (l *Lab) Home() string { return filepath.Join(l.dir(), "home") }

// Command is exec.CommandContext in the lab's network.
func (l *Lab) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + l.netns(), name}, args...)...)
}

func (l *Lab) dir() string   { return filepath.Join(labsDir, l.Name) }
func (l *Lab) netns() string { return "/run/netns/lab-" + l.Name }

func (l *Lab) save() error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(l.dir(), "lab.json")
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (l *Lab) makeNetwork(ctx context.Context, segments []labSegment) error {
	if err := runCommand(ctx, "ip", "netns", "add", "lab-"+l.Name); err != nil {
		return err
	}
	lines := [][]string{{"ip", "link", "set", "lo", "up"}}
	for _, s := range segments {
		lines = append(lines, [][]string{
			{"ip", "link", "add", s.bridge(), "type", "bridge"},
			{"ip", "addr", "add", s.network().String(), "dev", s.bridge()},
			{"ip", "addr", "add", s.network6().String(), "dev", s.bridge(), "nodad"},
			{"ip", "link", "set", s.bridge(), "up"},
		}...)
	}
	if len(segments) > 1 {
		lines = append(lines, []string{"sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"})
	}
	for _, args := range lines {
		if err := runCommand(ctx, append([]string{"nsenter", "--net=" + l.netns()}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// runCommand runs a command, with a timeout of a minute.
func runCommand(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
