package local

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/host"
)

const capSysResource = 24

// Facts collects facts about this machine.
func (h *Host) Facts(context.Context) (host.Facts, error) {
	f := host.Facts{
		Arch:   runtime.GOARCH,
		CPUs:   runtime.NumCPU(),
		IsRoot: os.Geteuid() == 0,
		OS:     release(),
		Sysctl: map[string]string{},
	}
	f.Hostname, _ = os.Hostname()
	f.Survey = collectSurvey()
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		f.Kernel = strings.TrimSpace(string(text))
	}
	f.Memory = memoryBytes()
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	f.CgroupV2 = err == nil
	f.CanAdjustOOM = capabilities()&(1<<capSysResource) != 0
	f.HasEtcdData, f.EtcdCluster = host.EtcdFacts(h)
	f.Identity, f.ClusterCA, f.SecretDigests, f.Boot = installationID(), host.ClusterCA(h), host.ReadSecretDigests(h),
		host.CurrentBootID(h)
	f.CertExpiry = earliestExpiry("/etc/kubernetes/pki")
	f.Snapshot = lastSnapshot()
	f.Release, f.UnconfirmedRelease = host.Releases(h)
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		f.MissingFeatures = append(f.MissingFeatures, "systemd")
	}
	for name := range host.Sysctls {
		path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		text, err := os.ReadFile(path)
		if err != nil {
			f.FrozenSysctls = append(f.FrozenSysctls, name)
			continue
		}
		f.Sysctl[name] = strings.TrimSpace(string(text))
		if syscall.Access(path, 2) != nil { // 2 is W_OK, which considers read-only mounts
			f.FrozenSysctls = append(f.FrozenSysctls, name)
		}
	}
	if addresses, err := net.InterfaceAddrs(); err == nil {
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
				f.Addresses = append(f.Addresses, n.IP.String())
			}
		}
	}
	return f, nil
}

// installationID returns a digest that identifies this installation, whatever its addresses and name are.
func installationID() string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return ""
	}
	sum := sha256.New()
	_, _ = sum.Write(id)                                    // never returns an error
	keys, _ := filepath.Glob("/etc/ssh/ssh_host_*_key.pub") // the pattern is valid
	for _, path := range keys {
		key, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		_, _ = sum.Write(key)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func release() string {
	values := osRelease()
	if values == nil {
		return runtime.GOOS
	}
	return strings.TrimSpace(values["ID"] + " " + values["VERSION_ID"])
}

func osRelease() map[string]string {
	f, err := os.Open("/etc/os-release")
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	values := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if k, v, ok := strings.Cut(lines.Text(), "="); ok {
			values[k] = strings.Trim(v, `"`)
		}
	}
	return values
}

func memoryBytes() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// capabilities returns the capability bounding set of this process.
func capabilities() uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, _ := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			return set
		}
	}
	return 0
}

func readAll(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}

// earliestExpiry returns the earliest expiry of the leaf certificates in a directory.
func earliestExpiry(dir string) (first time.Time) {
	for _, pattern := range []string{"*.crt", "*/*.crt"} {
		folder := os.DirFS(dir)
		paths, err := fs.Glob(folder, pattern)
		if err != nil {
			continue
		}
		for _, p := range paths {
			text, err := fs.ReadFile(folder, p)
			if err != nil {
				continue
			}
			if cert, err := certs.ParseCert(text); err == nil && !cert.IsCA &&
				(first.IsZero() || cert.NotAfter.Before(first)) {
				first = cert.NotAfter
			}
		}
	}
	return first
}
