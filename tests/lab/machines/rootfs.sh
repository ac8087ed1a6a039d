#!/bin/sh
# Prints the directory of the root file system that the machines of all labs have in common, and builds it when it is not
# in the cache. Its name has a digest of this file.
set -eu

if [ "${1-}" = setup ]; then # called by mmdebstrap when the packages are installed
	root=$2
	chroot "$root" useradd -m -s /bin/bash -G sudo admin
	echo admin:admin | chroot "$root" chpasswd
	chroot "$root" useradd -m -s /bin/bash guest
	rm -f "$root"/etc/ssh/ssh_host_* "$root"/etc/machine-id "$root"/etc/resolv.conf
	touch "$root"/etc/resolv.conf
	units=$root/etc/systemd/system
	for unit in getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer \
		dpkg-db-backup.timer fstrim.timer systemd-networkd-wait-online.service systemd-networkd.socket; do
		ln -sf /dev/null "$units/$unit"
	done
	mkdir -p "$units"/multi-user.target.wants "$units"/sysinit.target.wants
	ln -sf /lib/systemd/system/systemd-networkd.service "$units"/multi-user.target.wants/
	cat >"$units"/writable-cgroups.service <<-'UNIT'
		[Unit]
		Description=Make the version 1 cgroup controllers writable, as on a machine of its own
		DefaultDependencies=no
		Before=sysinit.target
		[Service]
		Type=oneshot
		ExecStart=/bin/sh -c 'mount -o remount,bind,rw /sys/fs/cgroup; for c in /sys/fs/cgroup/*/; do mount -o remount,bind,rw $c; done; true'
	UNIT
	ln -sf ../writable-cgroups.service "$units"/sysinit.target.wants/
	exit
fi

# What a machine has besides a minimal Debian: what any server has.
packages=systemd,systemd-sysv,dbus,libpam-systemd,openssh-server,sudo,iproute2,nftables
packages=$packages,ca-certificates,procps,kmod,iputils-ping,curl,conntrack,iptables,fish,tcsh

cache=/var/cache/clusterctl-lab
dir=$cache/bookworm-$(sha256sum <"$0" | cut -c1-12)
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -d "$dir" ]; then
	echo "building the machines' root file system once (about half a minute) …" >&2
	rm -rf "$dir.building"
	# Without the descriptors of make and others: mmdebstrap writes >&N in scripts of sh, which knows no N above 9.
	timeout 600 mmdebstrap --variant=minbase --include="$packages" --dpkgopt=force-unsafe-io \
		--customize-hook="sh '$(realpath "$0")' setup \"\$1\"" bookworm "$dir.building" >"$dir.log" 2>&1 \
		3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- ||
		{ tail -n 20 "$dir.log" >&2; exit 1; }
	rm "$dir.log"
	mv "$dir.building" "$dir"
fi
echo "$dir"
