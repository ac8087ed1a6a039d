package machines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// packages is what a machine has besides a minimal Debian: what any server has.
var packages = []string{
	"systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "sudo", "iproute2", "nftables",
	"ca-certificates", "procps", "kmod", "iputils-ping", "curl", "conntrack", "iptables",
}

// setup is run by sh with the new root as $1 after the packages are there.
const setup = `set -e
chroot "$1" useradd -m -s /bin/bash -G sudo admin
echo admin:admin | chroot "$1" chpasswd
chroot "$1" useradd -m -s /bin/bash guest
rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id "$1"/etc/resolv.conf
touch "$1"/etc/resolv.conf
for unit in getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer \
	dpkg-db-backup.timer fstrim.timer systemd-networkd-wait-online.service systemd-networkd.socket; do
	ln -sf /dev/null "$1/etc/systemd/system/$unit"
done
mkdir -p "$1"/etc/systemd/system/multi-user.target.wants "$1"/etc/systemd/system/sysinit.target.wants
ln -sf /lib/systemd/system/systemd-networkd.service "$1"/etc/systemd/system/multi-user.target.wants/
cat >"$1"/etc/systemd/system/writable-cgroups.service <<'UNIT'
[Unit]
Description=Make the version 1 cgroup controllers writable, as on a machine of its own
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mount -o remount,bind,rw /sys/fs/cgroup; for c in /sys/fs/cgroup/*/; do mount -o remount,bind,rw $c; done; true'
UNIT
ln -sf ../writable-cgroups.service "$1"/etc/systemd/system/sysinit.target.wants/
`

// rootFS returns the directory of the machines' common root, and builds it when it
// is not there. Its name holds a digest of what goes into it.
func rootFS(ctx context.Context, log io.Writer) (string, error) {
	digest := sha256.Sum256([]byte(strings.Join(packages, ",") + setup))
	dir := filepath.Join(cacheDir, "bookworm-"+hex.EncodeToString(digest[:6]))
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cacheDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fmt.Fprintln(log, "building the machines' root file system once (about half a minute) …")
	building := dir + ".building"
	if err := os.RemoveAll(building); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	script := building + ".sh"
	if err := os.WriteFile(script, []byte(setup), 0o700); err != nil {
		return "", err
	}
	defer os.Remove(script)
	out, err := exec.CommandContext(ctx, "mmdebstrap", "--variant=minbase", "--include="+strings.Join(packages, ","),
		"--customize-hook=sh "+script+` "$1"`, "bookworm", building).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the root file system: %w: %s", err, tail(string(out), 1000))
	}
	return dir, os.Rename(building, dir)
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}
