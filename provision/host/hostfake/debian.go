package hostfake

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"clusterctl/provision/host"
)

// Debian simulates apt and dpkg, as far as steps use them.
type Debian struct {
	Installed  map[string]string // installed versions, by package
	Lists      map[string]Offer  // the downloaded package lists
	Archive    map[string]Offer  // what the package archive offers
	IsOutdated bool              // the lists are out of date
}

// Offer is a version of a package.
type Offer struct {
	Version, Origin string
	NeedsReboot     bool // its installation requests a reboot
}

// run simulates a program. The caller holds h.mu.
func (d *Debian) run(h *Host, name string, args []string) ([]byte, error) {
	switch name {
	case "dpkg-query":
		if _, ok := d.Installed[args[len(args)-1]]; ok {
			return []byte("install ok installed"), nil
		}
		return nil, errors.New("no packages found matching " + args[len(args)-1])
	case "find":
		if d.IsOutdated {
			return nil, nil
		}
		return []byte(args[0] + "\n"), nil
	case "env":
		i := slices.Index(args, "apt-get")
		if i < 0 {
			return nil, fmt.Errorf("%q is not known here", args)
		}
		return d.apt(h, args[i+1:])
	}
	return nil, nil
}

func (d *Debian) apt(h *Host, args []string) ([]byte, error) {
	switch {
	case slices.Contains(args, "update"):
		d.Lists, d.IsOutdated = maps.Clone(d.Archive), false
	case slices.Contains(args, "--simulate"):
		var b strings.Builder
		b.WriteString("Reading package lists...\n")
		for _, name := range slices.Sorted(maps.Keys(d.Installed)) {
			if o := d.Lists[name]; o.Version != "" && o.Version != d.Installed[name] {
				fmt.Fprintf(&b, "Inst %s [%s] (%s %s [amd64])\n", name, d.Installed[name], o.Version, o.Origin)
			}
		}
		return []byte(b.String()), nil
	case slices.Contains(args, "install"):
		for _, arg := range args[slices.Index(args, "install")+1:] {
			if strings.HasPrefix(arg, "-") {
				continue
			}
			if err := d.install(h, arg); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (d *Debian) install(h *Host, arg string) error {
	name, version, named := strings.Cut(arg, "=")
	list := d.Lists[name]
	if !named {
		version = list.Version
	}
	if o := d.Archive[name]; version == "" || o.Version != version {
		return fmt.Errorf("version '%s' for '%s' was not found", version, name)
	}
	d.Installed[name] = version
	if list.NeedsReboot {
		h.files["/run/reboot-required"] = file{host.Info{Mode: 0o644}, []byte("*** System restart required ***\n")}
		h.files["/run/reboot-required.pkgs"] = file{host.Info{Mode: 0o644}, []byte(name + "\n")}
	}
	return nil
}

// reboot simulates a reboot: files in memory are lost, then h.Reboot is called. The caller holds h.mu.
func (h *Host) reboot() error {
	if err := h.beforeChange("reboot"); err != nil {
		return err
	}
	h.boots++
	maps.DeleteFunc(h.files, func(p string, _ file) bool { return strings.HasPrefix(path.Clean(p), "/run/") })
	h.files[host.BootIDPath] = file{host.Info{Mode: fs.FileMode(0o444)}, fmt.Appendf(nil, "boot %d\n", h.boots)}
	if h.Reboot == nil {
		return nil
	}
	h.mu.Unlock()
	defer h.mu.Lock()
	return h.Reboot(h)
}
