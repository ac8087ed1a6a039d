package step

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"clusterctl/provision/host"
)

// Times that a package manager may take.
const (
	asksPackages     = time.Minute
	installsPackages = 20 * time.Minute
)

// apt runs Debian's package manager so that it asks nobody anything and leaves configuration files as they are.
func apt(ctx context.Context, h host.Host, args ...string) ([]byte, error) {
	return h.Run(
		ctx,
		"env",
		append(
			[]string{
				"DEBIAN_FRONTEND=noninteractive",
				"NEEDRESTART_SUSPEND=1",
				"LC_ALL=C",
				"apt-get",
				"-q",
				"-o",
				"Dpkg::Options::=--force-confdef",
				"-o",
				"Dpkg::Options::=--force-confold",
				"-o",
				"DPkg::Lock::Timeout=300",
			},
			args...)...)
}

func knowsPackages(h host.Host) error {
	if _, err := h.Stat("/usr/bin/dpkg-query"); err != nil {
		return fmt.Errorf("only packages of Debian and its relatives are known here: %w", err)
	}
	return nil
}

// Package is that a package of the distribution is installed.
type Package struct {
	Name string `json:"name"`
}

// Label names the package.
func (s *Package) Label() string { return "package " + s.Name }

// Check asks the package manager.
func (s *Package) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, asksPackages)
	defer cancel()
	if err := knowsPackages(h); err != nil {
		return Change{}, err
	}
	out, err := h.Run(ctx, "dpkg-query", "-W", "-f=${Status}", s.Name)
	if err == nil && strings.HasPrefix(string(out), "install ok installed") {
		return Change{}, nil
	}
	w.Touch(packaged)
	return Change{Action: Create, Kind: "package", Name: s.Name}, nil
}

// packaged is the path that a walk notes as touched when a package is to be installed: any file may come with it.
const packaged = "/var/lib/dpkg/status"

// Apply installs it.
func (s *Package) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, installsPackages)
	defer cancel()
	if _, err := apt(ctx, h, "install", "-y", "--no-install-recommends", s.Name); err == nil {
		return nil
	}
	if _, err := apt(ctx, h, "update"); err != nil {
		return err
	}
	_, err := apt(ctx, h, "install", "-y", "--no-install-recommends", s.Name)
	return err
}

// packageLists is where the package manager keeps what there is to be had.
const packageLists = "/var/lib/apt/lists"

// PackageLists is that the package manager's lists are not older than a day.
type PackageLists struct{}

// Label says so.
func (*PackageLists) Label() string { return "lists of packages" }

// Check asks how old they are. They are as old as their folder, in which every reading of them writes.
func (*PackageLists) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, asksPackages)
	defer cancel()
	if err := knowsPackages(h); err != nil {
		return Change{}, err
	}
	young, err := h.Run(ctx, "find", packageLists, "-maxdepth", "0", "-mmin", "-1440")
	if err == nil && len(bytes.TrimSpace(young)) > 0 {
		return Change{}, nil
	}
	w.Touch(packageLists)
	return Change{
		Action: Update,
		Kind:   "lists",
		Name:   "of packages",
		Note:   "older than a day; what they bring is shown next time",
	}, nil
}

// Apply reads them anew.
func (*PackageLists) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, installsPackages)
	defer cancel()
	if _, err := apt(ctx, h, "update", "-o", "APT::Update::Error-Mode=any"); err != nil {
		return err
	}
	_, err := h.Run(ctx, "touch", packageLists)
	return err
}

// Upgrade is that the distribution's packages are those of its lists.
type Upgrade struct {
	Security bool `json:"security,omitempty"` // no others than those of its security archive
}

// Label says so.
func (*Upgrade) Label() string { return "upgrade of packages" }

// Check has the package manager work out what it would do. Lists that are read anew in this walk are not followed in
// it: nobody has seen yet what they bring.
func (s *Upgrade) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	if len(w.Touched([]string{packageLists})) > 0 {
		return Change{}, nil
	}
	list, err := s.upgrades(ctx, h)
	if err != nil || len(list) == 0 {
		return Change{}, err
	}
	c := Change{Action: Update, Kind: Upgrades, Name: fmt.Sprintf("of %d packages", len(list))}
	if len(list) == 1 {
		c.Name = "of 1 package"
	}
	for _, u := range list {
		c.Diff = append(c.Diff, fmt.Sprintf("%s: %s → %s", u.name, u.from, u.to))
	}
	return c, nil
}

// Upgrades and Reboots are the kinds of changes that take a whole machine out of service.
const (
	Upgrades = "upgrade"
	Reboots  = "reboot"
)

// Apply installs what Check has found, in those versions.
func (s *Upgrade) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	list, err := s.upgrades(ctx, h)
	if err != nil || len(list) == 0 {
		return err
	}
	args := []string{"install", "-y", "--only-upgrade", "--no-remove"}
	for _, u := range list {
		args = append(args, u.name+"="+u.to)
	}
	ctx, cancel := context.WithTimeout(ctx, installsPackages)
	defer cancel()
	if _, err := apt(ctx, h, args...); err != nil {
		_, again := apt(ctx, h, "update") // an archive keeps only the newest: the lists may be too old
		return errors.Join(
			fmt.Errorf(
				"upgrade packages: %w. The lists were read anew: plan again, and see to dpkg --audit there if this "+
					"stays",
				err,
			),
			again,
		)
	}
	return nil
}

type upgrade struct{ name, from, to string }

func (s *Upgrade) upgrades(ctx context.Context, h host.Host) ([]upgrade, error) {
	ctx, cancel := context.WithTimeout(ctx, asksPackages)
	defer cancel()
	if err := knowsPackages(h); err != nil {
		return nil, err
	}
	out, err := apt(ctx, h, "--simulate", "--no-remove", "--with-new-pkgs", "upgrade")
	if err != nil {
		return nil, fmt.Errorf("work out what can be upgraded: %w", err)
	}
	return simulated(out, s.Security), nil
}

// installs is how a simulation names what it would install: the name, the version that is there, and the new one with
// its origins.
var installs = regexp.MustCompile(`^Inst (\S+) \[(\S+)\] \((\S+) ([^)]*)\)`)

// simulated reads a simulation. What is not there yet comes with what needs it, and is not named.
func simulated(out []byte, security bool) (list []upgrade) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := installs.FindStringSubmatch(lines.Text())
		if m == nil || security && !strings.Contains(strings.ToLower(m[4]), "-security") {
			continue
		}
		list = append(list, upgrade{m[1], m[2], m[3]})
	}
	slices.SortFunc(list, func(a, b upgrade) int { return strings.Compare(a.name, b.name) })
	return list
}
