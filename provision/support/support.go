// Package support collects one machine's part of a support bundle, without secrets. Package run reaches the machines,
// and the command line writes the bundle.
package support

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/host"
)

// File is a file of a support bundle.
type File struct {
	Name    string `json:"name"` // relative path with slashes
	Content []byte `json:"content"`
}

// Limits: timeout of one command, maximum bytes of a file and of a machine's files, and lines of a journal.
const (
	commandTimeout  = 20 * time.Second
	maxFileBytes    = 2 << 20
	maxMachineBytes = 24 << 20
	journalLines    = "2000"
)

// journalUnits are the units whose journals are collected.
var journalUnits = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "containerd",
	"kube-proxy", "kube-network", "kube-dns", "kube-ingress", "kube-address", "metrics-server",
	"gitops-controller", "kube-dashboard",
}

// collectedCommands are run on every machine. They change nothing, and print no environment variables, which may hold
// secrets.
var collectedCommands = []struct {
	file string
	line []string
}{
	{"kernel.txt", []string{"uname", "-a"}},
	{"uptime.txt", []string{"uptime"}},
	{"release.txt", []string{"cat", "/etc/os-release"}},
	{"memory.txt", []string{"cat", "/proc/meminfo", "/proc/loadavg"}},
	{"disk.txt", []string{"df", "-h"}},
	{"inodes.txt", []string{"df", "-i"}},
	{"mounts.txt", []string{"cat", "/proc/mounts"}},
	{"processes.txt", []string{"ps", "-eo", "pid,ppid,stat,lstart,rss,pcpu,unit,comm", "--sort=pid"}},
	{"sockets.txt", []string{"ss", "-tulpn"}},
	{"connections.txt", []string{"ss", "-tn", "state", "established"}},
	{"addresses.txt", []string{"ip", "address"}},
	{"routes.txt", []string{"ip", "route", "show", "table", "all"}},
	{"neighbours.txt", []string{"ip", "neighbour"}},
	{"rules.txt", []string{"nft", "list", "ruleset"}},
	{"failed-units.txt", []string{"systemctl", "--no-pager", "--full", "list-units", "--failed"}},
	{"all-units.txt", []string{"systemctl", "--no-pager", "--full", "list-units", "--all"}},
	{"kernel-log.txt", []string{"journalctl", "--no-pager", "-k", "-n", "500", "-o", "short-iso"}},
	{"versions/clusterctl.txt", []string{"clusterctl", "version"}},
	{"versions/systemd.txt", []string{"systemctl", "--version"}},
}

// programs are asked for their versions in all places where they exist. clusterctl installs into the first place, and
// distributions into the others. A machine may have only some of the programs, because static pods have theirs in
// images.
var (
	versionedPrograms = []string{"containerd", "runc", "etcd"}
	programDirs       = []string{"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin"}
)

// Collect collects the files of a machine. If something cannot be collected, its file contains the error, because an
// incomplete bundle is better than none.
func Collect(ctx context.Context, h host.Host) []File {
	c := &collector{host: h}
	for _, cmd := range collectedCommands {
		c.addOutput(ctx, cmd.file, cmd.line...)
	}
	c.addVersions(ctx)
	for _, u := range journalUnits {
		state, err := h.Unit(ctx, u+".service")
		if err != nil || state.Active == "" || state.Fragment == "" {
			continue
		}
		c.addOutput(ctx, "units/"+u+".txt", "systemctl", "--no-pager", "--full", "-n", "0", "status", u+".service")
		c.addOutput(ctx, "units/"+u+".service", "systemctl", "--no-pager", "cat", u+".service")
		c.addOutput(ctx, "journal/"+u+".log", "journalctl", "--no-pager", "-u", u+".service", "-n", journalLines, "-o",
			"short-iso")
	}
	c.addCertificates("/etc/kubernetes/pki")
	c.addFolder("manifests", "/etc/kubernetes/manifests", 0)
	c.addFolder("cni", "/etc/cni/net.d", 0)
	c.addFile("kubelet-config.yaml", "/var/lib/kubelet/config.yaml")
	c.addFile("containerd-config.toml", "/etc/containerd/config.toml")
	c.addFolder("control-plane-logs", "/var/log/pods", 3)
	return c.files
}

type collector struct {
	host  host.Host
	files []File
	size  int
}

// add adds the end of a text, without secrets.
func (c *collector) add(name string, content []byte) {
	if len(content) > maxFileBytes {
		content = append([]byte("(the beginning is left out)\n"), content[len(content)-maxFileBytes:]...)
	}
	content = []byte(Redact(string(content)))
	if c.size += len(content); c.size > maxMachineBytes {
		content = []byte("(left out: the bundle is large enough)\n")
	}
	c.files = append(c.files, File{name, content})
}

func (c *collector) addOutput(ctx context.Context, name string, line ...string) {
	c.add(name, c.output(ctx, line...))
}

func (c *collector) output(ctx context.Context, line ...string) []byte {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := c.host.Run(ctx, line[0], line[1:]...)
	if err != nil {
		out = fmt.Appendf(out, "\n(%s: %v)\n", strings.Join(line, " "), err)
	}
	return out
}

// addVersions asks all programs with a name for their version, because only the unit determines which one runs.
func (c *collector) addVersions(ctx context.Context) {
	for _, program := range versionedPrograms {
		var text []byte
		for _, place := range programDirs {
			at := path.Join(place, program)
			if _, err := c.host.Stat(at); err != nil {
				continue
			}
			text = fmt.Appendf(text, "# %s\n", at)
			text = append(text, c.output(ctx, at, "--version")...)
		}
		if len(text) > 0 {
			c.add("versions/"+program+".txt", text)
		}
	}
}

func (c *collector) addFile(name, at string) {
	if info, err := c.host.Stat(at); err != nil || !info.Mode.IsRegular() {
		return
	}
	text, err := c.host.ReadFile(at)
	if err != nil {
		text = fmt.Appendf(nil, "(%v)\n", err)
	}
	c.add(name, text)
}

// addFolder adds the files of a directory, down to a depth. Of the pods' logs, it adds only those of the control plane,
// because other logs belong to users.
func (c *collector) addFolder(name, at string, depth int) {
	names, err := c.host.List(at)
	if err != nil {
		return
	}
	for _, n := range names {
		below := path.Join(at, n)
		info, err := c.host.Stat(below)
		switch {
		case err != nil:
		case info.Mode.IsDir() && depth > 0 && (at != "/var/log/pods" || isControlPlanePod(n)):
			c.addFolder(path.Join(name, n), below, depth-1)
		case info.Mode.IsRegular():
			c.addFile(path.Join(name, n), below)
		}
	}
}

func isControlPlanePod(folder string) bool {
	for _, p := range []string{"etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-scheduler-",
		"metrics-server-"} {
		if strings.HasPrefix(folder, "kube-system_"+p) {
			return true
		}
	}
	return false
}

// addCertificates lists the subject and the validity of every certificate.
func (c *collector) addCertificates(at string) {
	var text strings.Builder
	text.WriteString("FILE\tSUBJECT\tISSUER\tSERIAL\tNOT BEFORE\tNOT AFTER\n")
	for _, dir := range []string{at, at + "/etcd"} {
		names, err := c.host.List(dir)
		if err != nil {
			continue
		}
		for _, n := range names {
			if path.Ext(n) != ".crt" {
				continue
			}
			pem, err := c.host.ReadFile(path.Join(dir, n))
			if err != nil {
				fmt.Fprintf(&text, "%s\t%v\n", path.Join(dir, n), err)
				continue
			}
			cert, err := certs.ParseCert(pem)
			if err != nil {
				fmt.Fprintf(&text, "%s\t%v\n", path.Join(dir, n), err)
				continue
			}
			fmt.Fprintf(&text, "%s\t%s\t%s\t%x\t%s\t%s\n", path.Join(dir, n), cert.Subject, cert.Issuer,
				cert.SerialNumber, cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	c.add("certificates.txt", []byte(text.String()))
}
