package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"clusterctl/provision/host"
	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/machines"
)

// ansible installs the files of an apply on the same machines with Debian's Ansible, and starts the same units.
func (b *bench) ansible(ctx context.Context) error {
	if err := installAnsible(ctx); err != nil {
		return err
	}
	if b.installed == nil { // the part small has not run
		if err := b.smallOnce(ctx, false, true); err != nil {
			return err
		}
	}
	defer func() { _ = os.RemoveAll(b.installed.dir) }()
	ours := map[string]float64{}
	for _, f := range b.figures {
		if f.work == coldSmall {
			ours[f.unit] = f.median()
		}
	}
	for range b.runs {
		wall, cpu, err := b.ansibleOnce(ctx)
		if err != nil {
			return err
		}
		b.add("the same files, units and certificates by Ansible", "s", 0, wall)
		b.add("the same files, units and certificates by Ansible", "CPU s of the tool", 0, cpu)
		b.add("Ansible ÷ clusterctl, clock", "times", 10, wall/ours["s"]).isMinimum = true
		b.add("Ansible ÷ clusterctl, CPU", "times", 20, cpu/ours["CPU s of the tool"]).isMinimum = true
	}
	return nil
}

func (b *bench) ansibleOnce(ctx context.Context) (wall, cpu float64, err error) {
	c, err := b.boot(ctx, "bench-ansible", smallMachines, "examples/small/cluster.hcl")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, stopCluster(ctx, c)) }()
	for _, m := range c.Lab.Machines {
		if err := installPython(ctx, b.installed.dir, m.Root()); err != nil {
			return 0, 0, err
		}
	}
	if err := b.installed.writePlaybook(c); err != nil {
		return 0, 0, err
	}
	cmd := c.Lab.Command(ctx, "ansible-playbook", "-i", "inventory", "play.yml")
	cmd.Dir, cmd.Env = b.installed.dir, append(os.Environ(), "HOME="+c.Lab.Home(),
		"ANSIBLE_CONFIG="+filepath.Join(b.installed.dir, "ansible.cfg"))
	if _, wall, cpu, err = runTimed(cmd); err != nil {
		return 0, 0, err
	}
	for _, m := range c.Lab.Machines {
		for _, unit := range b.installed.units[m.Name] {
			if out, err := m.Run(ctx, "systemctl is-active "+unit); err != nil {
				return 0, 0, fmt.Errorf("after Ansible %s on %s is %s: %w", unit, m.Name, out, err)
			}
		}
	}
	return wall, cpu, nil
}

func installAnsible(ctx context.Context) error {
	if _, err := exec.LookPath("ansible-playbook"); err == nil {
		return nil
	}
	out, err := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", "ansible-core").
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("install Debian's ansible-core: %w: %s", err, out)
	}
	return nil
}

// installPython installs Debian's Python on a machine, because Ansible requires it there.
func installPython(ctx context.Context, dir, root string) error {
	script := `set -e
mkdir -p "$1/python"; cd "$1/python"
ls *.deb >/dev/null 2>&1 || apt-get download -q python3 python3-minimal python3.11 python3.11-minimal libpython3-stdlib libpython3.11-minimal libpython3.11-stdlib libffi8 libexpat1 libsqlite3-0 zlib1g >&2
for deb in *.deb; do dpkg-deb --fsys-tarfile $deb | tar -x -C "$2" --keep-directory-symlink --skip-old-files; done`
	out, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", dir, root).CombinedOutput()
	if err != nil {
		return fmt.Errorf("put Python on a machine: %w: %s", err, out)
	}
	return nil
}

// installedFiles is what a first apply has installed: a folder with an archive of programs and the files of each
// machine.
type installedFiles struct {
	dir   string
	files map[string][]installedFile // by machine name
	units map[string][]string
}

type installedFile struct {
	path  string
	mode  fs.FileMode
	isDir bool
}

// unitOrder is the order in which the units start.
var unitOrder = []string{
	"etcd",
	"kube-apiserver",
	"kube-scheduler",
	"kube-controller-manager",
	"containerd",
	"kubelet",
	"kube-proxy",
	"kube-network",
	"kube-dns",
	"metrics-server",
}

// copyInstalled copies the files that an apply has installed.
func copyInstalled(c *cluster.Cluster) (l *installedFiles, err error) {
	l = &installedFiles{files: map[string][]installedFile{}, units: map[string][]string{}}
	if l.dir, err = os.MkdirTemp("", "bench-ansible-"); err != nil {
		return nil, err
	}
	for _, m := range c.Lab.Machines {
		if err := l.installOn(m); err != nil {
			return nil, fmt.Errorf("gather what is on %s: %w", m.Name, err)
		}
	}
	return l, nil
}

func (l *installedFiles) installOn(m *machines.Machine) error {
	root := m.Root()
	for _, top := range []string{"/etc/kubernetes", "/etc/containerd/config.toml", "/etc/sysctl.d/90-kubernetes.conf",
		"/var/lib/kubelet/config.yaml", "/etc/systemd/system"} {
		err := filepath.WalkDir(root+top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			f := installedFile{strings.TrimPrefix(path, root), info.Mode(), d.IsDir()}
			if f.isDir && top == "/etc/kubernetes" {
				l.files[m.Name] = append(l.files[m.Name], f)
			}
			if !info.Mode().IsRegular() {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if name, unit := strings.CutSuffix(filepath.Base(path), ".service"); top == "/etc/systemd/system" {
				if !unit || !slices.Contains(unitOrder, name) {
					return nil
				}
				l.units[m.Name] = append(l.units[m.Name], name)
			}
			to := filepath.Join(l.dir, "files", m.Name, f.path)
			if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
				return err
			}
			l.files[m.Name] = append(l.files[m.Name], f)
			return os.WriteFile(to, text, 0o600)
		})
		if err != nil {
			return err
		}
	}
	slices.SortFunc(l.units[m.Name],
		func(a, b string) int { return slices.Index(unitOrder, a) - slices.Index(unitOrder, b) })
	// The archive has only those directories that exist on the machine.
	out, err := exec.Command("sh", "-c", `cd "$1" && ls -d .`+host.LibraryDir+` usr/local/bin opt/cni/bin 2>/dev/null | tar -czf "$2" -T -`, "sh", root, filepath.Join(l.dir, "programs-"+m.Name+".tar.gz")).
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

const playbook = `- hosts: all
  gather_facts: false
  tasks:
    - name: programs
      unarchive:
        src: programs-{{ inventory_hostname }}.tar.gz
        dest: /
    - name: directories
      file:
        path: "{{ item.path }}"
        state: directory
        mode: "{{ item.mode }}"
      loop: "{{ directories }}"
    - name: files
      copy:
        src: files/{{ inventory_hostname }}{{ item.path }}
        dest: "{{ item.path }}"
        owner: root
        group: root
        mode: "{{ item.mode }}"
      loop: "{{ files }}"
    - name: settings
      command: sysctl -e -q -p /etc/sysctl.d/90-kubernetes.conf
      when: "'kubelet' in units"
      failed_when: false
    - name: systemd reads its units again
      systemd:
        daemon_reload: true
    - name: units
      systemd:
        name: "{{ item }}"
        state: started
        enabled: true
      loop: "{{ units }}"
`

// writePlaybook writes the playbook with its inventory and variables for a lab.
func (l *installedFiles) writePlaybook(c *cluster.Cluster) error {
	var inventory strings.Builder
	for _, m := range c.Lab.Machines {
		fmt.Fprintf(&inventory, "%s ansible_host=%s\n", m.Name, m.Address)
		var vars strings.Builder
		dirs := []installedFile{{"/var/lib/kubelet", 0o750, true}, {"/etc/containerd", 0o755, true}}
		var files []installedFile
		for _, f := range l.files[m.Name] {
			if f.isDir {
				dirs = append(dirs, f)
			} else {
				files = append(files, f)
			}
		}
		for _, part := range []struct {
			name string
			list []installedFile
		}{{"directories", dirs}, {"files", files}} {
			fmt.Fprintf(&vars, "%s:\n", part.name)
			for _, f := range part.list {
				fmt.Fprintf(&vars, "  - {path: %q, mode: \"%04o\"}\n", f.path, f.mode.Perm())
			}
		}
		fmt.Fprintf(&vars, "units: [%s]\n", strings.Join(l.units[m.Name], ", "))
		path := filepath.Join(l.dir, "host_vars", m.Name+".yml")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(vars.String()), 0o600); err != nil {
			return err
		}
	}
	inventory.WriteString("[all:vars]\nansible_user=root\nansible_python_interpreter=/usr/bin/python3\n")
	settings := fmt.Sprintf(`[defaults]
forks = 10
private_key_file = %s
[ssh_connection]
pipelining = True
ssh_args = -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=%s -o IdentitiesOnly=yes
`, c.Lab.Key(), c.Lab.KnownHosts())
	for name, text := range map[string]string{"inventory": inventory.String(), "play.yml": playbook,
		"ansible.cfg": settings} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
