package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"clusterctl/provision/host"
)

// collectSurvey collects facts that may prevent a cluster on the machine. It leaves out what cannot be determined.
func collectSurvey() host.Survey {
	s := host.Survey{
		MTU:                 map[string]int{},
		FreeBytes:           map[string]int64{},
		OSLike:              osRelease()["ID_LIKE"],
		Controllers:         cgroupControllers(),
		Swap:                swapBytes(),
		MissingNodeFeatures: missingFeatures(),
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(strings.TrimSpace(string(id))) > 0 {
		sum := sha256.Sum256(id)
		s.MachineID = hex.EncodeToString(sum[:])
	}
	if links, err := net.Interfaces(); err == nil {
		for _, l := range links {
			addresses, err := l.Addrs()
			if err != nil {
				continue
			}
			for _, a := range addresses {
				if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() {
					s.MTU[n.IP.String()] = l.MTU
				}
			}
		}
	}
	s.Proxies = systemdProxies()
	for _, path := range host.SurveyedPaths {
		var stat syscall.Statfs_t
		if syscall.Statfs(existingParent(path), &stat) == nil {
			s.FreeBytes[path] = int64(stat.Bavail) * stat.Bsize
		}
	}
	for _, name := range host.ExternalPrograms {
		if _, err := exec.LookPath(name); err != nil {
			s.MissingPrograms = append(s.MissingPrograms, name)
		}
	}
	for _, path := range []string{"/usr/local", "/etc", "/var/lib"} {
		if err := syscall.Access(existingParent(path), 2); errors.Is(err, syscall.EROFS) { // 2 is W_OK
			s.ReadOnly = append(s.ReadOnly, path)
		}
	}
	if _, err := os.Stat("/var/lib/clusterctl/units"); errors.Is(err,
		fs.ErrNotExist) { // no unit of a cluster has started yet
		s.SyncDuration, s.Listening = measureSync("/var/lib"), findListeners()
	}
	s.Clock = time.Now()
	return s
}

// existingParent returns a path, or its nearest parent that exists.
func existingParent(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == "/" {
			return path
		}
		path = filepath.Dir(path)
	}
}

// swapBytes returns the size of the machine's swap space in bytes.
func swapBytes() (bytes int64) {
	text, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 2 {
			kib, _ := strconv.ParseInt(fields[2], 10, 64) // the header's field is not a number and yields 0
			bytes += kib << 10
		}
	}
	return bytes
}

// cgroupControllers returns the cgroup controllers, of cgroup v2 or v1.
func cgroupControllers() (list []string) {
	if text, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return strings.Fields(string(text))
	}
	text, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[3] == "1" {
			list = append(list, fields[0])
		}
	}
	return list
}

// measureSync measures ten synchronous writes of 2300 bytes, and returns the second longest duration.
func measureSync(dir string) time.Duration {
	f, err := os.CreateTemp(dir, ".clusterctl-*")
	if err != nil {
		return 0
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	block, took := make([]byte, 2300), []time.Duration{} // about the size of a write to etcd's log
	for range 10 {
		start := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)-2]
}

const tcpListen = "0A" // the state LISTEN in /proc/net/tcp

// findListeners finds the processes that listen on a port that a cluster needs, except daemons of a cluster.
func findListeners() (list []host.Listener) {
	sockets := map[string]host.Listener{} // by inode
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile("/proc/net/" + file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || strings.HasPrefix(file, "tcp") && fields[3] != tcpListen {
				continue
			}
			address, hexPort, _ := strings.Cut(fields[1], ":")
			port, err := strconv.ParseInt(hexPort, 16, 32)
			if _, needed := host.DaemonPorts[int(port)]; err != nil || !needed || hasNoConflict(int(port), address) {
				continue
			}
			sockets[fields[9]] = host.Listener{Port: int(port), Network: file[:3]}
		}
	}
	if len(sockets) == 0 {
		return nil
	}
	owners := socketOwners(sockets)
	seen := map[host.Listener]bool{}
	for inode, l := range sockets {
		pid := owners[inode]
		if pid != "" && isClusterDaemon(pid) {
			continue
		}
		if name, err := os.ReadFile("/proc/" + pid + "/comm"); pid != "" && err == nil {
			l.Process = fmt.Sprintf("%s, process %s", strings.TrimSpace(string(name)), pid)
		}
		if !seen[l] {
			seen[l] = true
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b host.Listener) int { return a.Port - b.Port })
	return list
}

// hasNoConflict reports whether a listener does not conflict: kube-dns uses the machine's own address, while local
// resolvers use the loopback address.
func hasNoConflict(port int, address string) bool {
	loopback := len(address) == 8 && strings.HasSuffix(address, "7F") || address == "00000000000000000000000001000000"
	return port == 53 && loopback
}

// socketOwners maps the inodes of sockets to the IDs of the processes that own them.
func socketOwners(sockets map[string]host.Listener) map[string]string {
	found := map[string]string{}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		inode, ok := strings.CutPrefix(to, "socket:[")
		if inode = strings.TrimSuffix(inode, "]"); ok {
			if _, wanted := sockets[inode]; wanted {
				found[inode] = strings.Split(link, "/")[2]
			}
		}
	}
	return found
}

// isClusterDaemon reports whether a process is a daemon of a cluster made by clusterctl, in a unit or in a static pod.
func isClusterDaemon(pid string) bool {
	if program, err := os.Readlink("/proc/" + pid + "/exe"); err == nil &&
		strings.HasPrefix(program, host.LibraryDir+"/") {
		return true
	}
	groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
	return err == nil && strings.Contains(string(groups), "/kubepods")
}
