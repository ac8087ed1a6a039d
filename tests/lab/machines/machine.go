package machines

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Machine is one machine of a lab.
type Machine struct {
	lab     *Lab
	Name    string
	Address string
}

// Start boots the machine, also after PowerCut, and waits until it accepts SSH connections.
func (m *Machine) Start(ctx context.Context) error {
	if m.leaderPID() != 0 {
		return nil
	}
	console, err := os.Create(m.path("console"))
	if err != nil {
		return err
	}
	defer console.Close()
	// A machine gets its own cgroup in every hierarchy before it starts, so that it sees its own root there, as on real
	// hardware. /var/lib/containerd and /var/lib/etcd are directories of the host, because overlays do not nest.
	script := `set -e
for c in /sys/fs/cgroup/*/; do
	mkdir -p $c$CGROUP
	if [ -f ${c}cpuset.cpus ]; then
		for d in $c${CGROUP%/*} $c$CGROUP; do cat ${c}cpuset.cpus >$d/cpuset.cpus; cat ${c}cpuset.mems >$d/cpuset.mems; done
	fi
	echo $$ >$c$CGROUP/cgroup.procs
done
exec "$@"`
	cmd := exec.Command("sh", "-c", script, "sh", "nsenter", "--net="+m.lab.netns(),
		"systemd-nspawn", "-q", "-D", m.path("root"), "-b", "--machine="+m.Name, "--register=no", "--keep-unit",
		"--network-bridge="+segmentOf(m.Address).bridge(), "--capability=all", "--system-call-filter=@default @known",
		"--bind="+m.dataDir("containerd")+":/var/lib/containerd", "--bind="+m.dataDir("etcd")+":/var/lib/etcd",
		"--bind=/dev/kmsg", "--resolv-conf=off")
	cmd.Env = append(os.Environ(), "CGROUP="+m.cgroup())
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the machine outlives the command that starts it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start machine %s: %w", m.Name, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	if err := os.WriteFile(m.path("pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if conn, err := m.lab.Dial(ctx, "tcp", m.Address+":22"); err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("machine %s did not boot: %w: %s", m.Name, ctx.Err(), m.console())
		case <-ended:
			return fmt.Errorf("machine %s ended while booting: %s", m.Name, m.console())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// PowerCut ends the machine as a power cut does: its processes get no signal to shut down, and the disk is kept.
func (m *Machine) PowerCut(ctx context.Context) error {
	pid := m.nspawnPID()
	if pid == 0 {
		return nil
	}
	if leader := m.leaderPID(); leader != 0 {
		_ = syscall.Kill(leader, syscall.SIGKILL)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for m.nspawnPID() != 0 {
		select {
		case <-ctx.Done():
			_ = syscall.Kill(pid, syscall.SIGKILL)
			return fmt.Errorf("machine %s did not end in time", m.Name)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return os.Remove(m.path("pid"))
}

// Disconnect disconnects the machine from the network. Reconnect undoes it.
func (m *Machine) Disconnect(ctx context.Context) error { return m.setLink(ctx, "down") }

// Reconnect undoes Disconnect.
func (m *Machine) Reconnect(ctx context.Context) error { return m.setLink(ctx, "up") }

func (m *Machine) setLink(ctx context.Context, state string) error {
	return runCommand(ctx, "nsenter", "--net="+m.lab.netns(), "ip", "link", "set", "vb-"+m.Name, state)
}

// SSH returns a command that runs line on the machine as a user, over SSH in the lab's network.
func (m *Machine) SSH(ctx context.Context, user, line string) *exec.Cmd {
	args := []string{"-i", m.lab.Key(), "-o", "UserKnownHostsFile=" + m.lab.KnownHosts(), "-o", "IdentitiesOnly=yes",
		"-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR", user + "@" + m.Address}
	if line != "" {
		args = append(args, line)
	}
	return m.lab.Command(ctx, "ssh", args...)
}

// Command returns a command that runs a shell command as root on the machine. It enters the machine's namespaces
// instead of using SSH, because SSH sessions took a twentieth of the time of all suites.
func (m *Machine) Command(ctx context.Context, line string) (*exec.Cmd, error) {
	leader := m.leaderPID()
	if leader == 0 {
		return nil, fmt.Errorf("%s on %s: the machine does not run", line, m.Name)
	}
	cmd := exec.CommandContext(ctx, "nsenter", "--target="+strconv.Itoa(leader), "--mount", "--uts", "--ipc", "--net",
		"--pid", "--root", "--wd=/root", "/usr/bin/env", "-i", "HOME=/root", "USER=root", "LOGNAME=root",
		"SHELL=/bin/bash", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "/bin/bash", "-c", line)
	cmd.WaitDelay = 5 * time.Second // the command is a child of nsenter, and may keep its output open
	return cmd, nil
}

// Run runs a shell command as root on the machine, as Command does, and returns its output.
func (m *Machine) Run(ctx context.Context, line string) (string, error) {
	cmd, err := m.Command(ctx, line)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s on %s: %w: %s", line, m.Name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// create creates the machine's disk, which is an overlay over the common root.
func (m *Machine) create(ctx context.Context, base string, disk int64) error {
	if err := os.MkdirAll(m.path("root"), 0o755); err != nil {
		return err
	}
	if disk > 0 {
		if err := m.makeDisk(ctx, disk); err != nil {
			return err
		}
	}
	for _, dir := range []string{"upper", "work", "containerd", "etcd"} {
		if err := os.MkdirAll(m.dataDir(dir), 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, m.dataDir("upper"), m.dataDir("work"))
	if err := syscall.Mount("overlay", m.path("root"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	hostKey, err := m.lab.hostKey(m.Address)
	if err != nil {
		return err
	}
	public, err := os.ReadFile(m.lab.Key() + ".pub")
	if err != nil {
		return err
	}
	network, network6 := segmentOf(m.Address).network(), segmentOf(m.Address).network6()
	files := map[string][]byte{
		"etc/hostname":   []byte(m.Name + "\n"),
		"etc/hosts":      []byte("127.0.0.1 localhost\n" + m.Address + " " + m.Name + "\n"),
		"etc/machine-id": []byte(hex.EncodeToString(id) + "\n"),
		"etc/systemd/network/10-host0.network": fmt.Appendf(
			nil,
			"[Match]\nName=host0\n[Network]\nAddress=%s/%d\nGateway=%s\nGateway=%s\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=no\n[Address]\nAddress=%s/%d\nDuplicateAddressDetection=none\n",
			m.Address,
			network.Bits(),
			network.Addr(),
			network6.Addr(),
			IPv6Of(m.Address),
			network6.Bits(),
		),
		"etc/ssh/ssh_host_ed25519_key":    hostKey,
		"root/.ssh/authorized_keys":       public,
		"home/admin/.ssh/authorized_keys": public,
		"home/guest/.ssh/authorized_keys": public,
	}
	for name, content := range files {
		path := filepath.Join(m.path("root"), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "etc/ssh/") {
			mode = 0o600
		}
		if err := os.WriteFile(path, content, mode); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) remove() error {
	for _, dir := range []string{"root", "disk"} {
		if err := syscall.Unmount(m.path(dir), 0); err != nil && !errors.Is(err, syscall.EINVAL) &&
			!errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("unmount the disk of %s: %w", m.Name, err)
		}
	}
	return nil
}

func (m *Machine) path(name string) string { return filepath.Join(m.lab.dir(), m.Name, name) }
func (m *Machine) cgroup() string          { return "clusterctl-lab-" + m.lab.Name + "/" + m.Name }

func (m *Machine) console() string {
	text, _ := os.ReadFile(m.path("console"))
	return tail(string(text), 500)
}

// nspawnPID returns the process id of systemd-nspawn for the machine, or 0. If another process has reused the id, its
// cgroup shows it.
func (m *Machine) nspawnPID() int {
	text, err := os.ReadFile(m.path("pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || !strings.Contains(string(cgroups), "/"+m.cgroup()) {
		return 0
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil ||
		bytes.Contains(state, []byte(") Z ")) {
		return 0
	}
	return pid
}

// leaderPID returns the process id of the machine's process 1, or 0 if the machine is off.
func (m *Machine) leaderPID() int {
	pid := m.nspawnPID()
	if pid == 0 {
		return 0
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0
	}
	leader, _ := strconv.Atoi(fields[0])
	return leader
}
