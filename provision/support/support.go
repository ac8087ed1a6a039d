// Package support gathers what somebody else needs to find a fault: what one machine says
// of itself, without secrets. How machines are reached is provision/run's, and what
// becomes of the files the command line's.
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

// File is a piece of a support bundle.
type File struct {
	Name    string `json:"name"` // relative, with slashes
	Content []byte `json:"content"`
}

// Bounds: of one command, and of what is kept of it.
const (
	commandTimeout = 20 * time.Second
	maxFile        = 2 << 20
	maxMachine     = 24 << 20
	journalLines   = "2000"
)

// units are those whose journals are read.
var units = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "containerd",
	"kube-proxy", "kube-network", "kube-dns", "kube-ingress", "kube-address", "metrics-server",
}

// commands are what is asked of every machine. None changes anything, and none shows an
// environment, which may hold secrets.
var commands = []struct {
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

// programs say their version where they are: what comes with clusterctl stands in the first of places, the
// distribution's in the others. Machines have some of them, and static pods have theirs in images.
var (
	programs = []string{"containerd", "runc", "etcd"}
	places   = []string{"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin"}
)

// Collect asks a machine. What cannot be asked says so in its file: half a bundle is
// better than none.
func Collect(ctx context.Context, h host.Host) []File {
	c := &collector{host: h}
	for _, cmd := range commands {
		c.run(ctx, cmd.file, cmd.line...)
	}
	c.versions(ctx)
	for _, u := range units {
		state, err := h.Unit(ctx, u+".service")
		if err != nil || state.Active == "" || state.Fragment == "" {
			continue
		}
		c.run(ctx, "units/"+u+".txt", "systemctl", "--no-pager", "--full", "-n", "0", "status", u+".service")
		c.run(ctx, "units/"+u+".service", "systemctl", "--no-pager", "cat", u+".service")
		c.run(
			ctx,
			"journal/"+u+".log",
			"journalctl",
			"--no-pager",
			"-u",
			u+".service",
			"-n",
			journalLines,
			"-o",
			"short-iso",
		)
	}
	c.certificates("/etc/kubernetes/pki")
	c.folder("manifests", "/etc/kubernetes/manifests", 0)
	c.folder("cni", "/etc/cni/net.d", 0)
	c.file("kubelet-config.yaml", "/var/lib/kubelet/config.yaml")
	c.file("containerd-config.toml", "/etc/containerd/config.toml")
	c.folder("control-plane-logs", "/var/log/pods", 3)
	return c.files
}

type collector struct {
	host  host.Host
	files []File
	size  int
}

// add keeps the end of a text, without secrets.
func (c *collector) add(name string, content []byte) {
	if len(content) > maxFile {
		content = append([]byte("(the beginning is left out)\n"), content[len(content)-maxFile:]...)
	}
	content = []byte(Redact(string(content)))
	if c.size += len(content); c.size > maxMachine {
		content = []byte("(left out: the bundle is large enough)\n")
	}
	c.files = append(c.files, File{name, content})
}

func (c *collector) run(ctx context.Context, name string, line ...string) {
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

// versions asks the programs that are there, all of those of one name: which one is run is the unit's to say.
func (c *collector) versions(ctx context.Context) {
	for _, program := range programs {
		var text []byte
		for _, place := range places {
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

func (c *collector) file(name, at string) {
	if info, err := c.host.Stat(at); err != nil || !info.Mode.IsRegular() {
		return
	}
	text, err := c.host.ReadFile(at)
	if err != nil {
		text = fmt.Appendf(nil, "(%v)\n", err)
	}
	c.add(name, text)
}

// folder takes the files of a folder, and of those in it down to a depth. Of pods'
// logs only the control plane's are taken: others are not the cluster's to show.
func (c *collector) folder(name, at string, depth int) {
	names, err := c.host.List(at)
	if err != nil {
		return
	}
	for _, n := range names {
		below := path.Join(at, n)
		info, err := c.host.Stat(below)
		switch {
		case err != nil:
		case info.Mode.IsDir() && depth > 0 && (at != "/var/log/pods" || controlPlane(n)):
			c.folder(path.Join(name, n), below, depth-1)
		case info.Mode.IsRegular():
			c.file(path.Join(name, n), below)
		}
	}
}

func controlPlane(folder string) bool {
	for _, p := range []string{"etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-scheduler-",
		"metrics-server-"} {
		if strings.HasPrefix(folder, "kube-system_"+p) {
			return true
		}
	}
	return false
}

// certificates says of every certificate whose it is and when it ends.
func (c *collector) certificates(at string) {
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
			fmt.Fprintf(
				&text,
				"%s\t%s\t%s\t%x\t%s\t%s\n",
				path.Join(dir, n),
				cert.Subject,
				cert.Issuer,
				cert.SerialNumber,
				cert.NotBefore.UTC().Format(time.RFC3339),
				cert.NotAfter.UTC().Format(time.RFC3339),
			)
		}
	}
	c.add("certificates.txt", []byte(text.String()))
}
