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

// Timeouts of the package manager.
const (
	aptQueryTimeout   = time.Minute
	aptInstallTimeout = 20 * time.Minute
)

// runAPT runs apt-get without prompts. It keeps changed configuration files.
func runAPT(ctx context.Context, h host.Host, args ...string) ([]byte, error) {
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

func checkAPT(h host.Host) error {
	if _, err := h.Stat("/usr/bin/dpkg-query"); err != nil {
		return fmt.Errorf("only packages of Debian and its relatives are known here: %w", err)
	}
	return nil
}

// Package installs a package of the distribution.
type Package struct {
	Name string `json:"name"`
}

// Label names the package.
func (s *Package) Label() string { return "package " + s.Name }

// Check asks the package manager whether the package is installed.
func (s *Package) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, aptQueryTimeout)
	defer cancel()
	if err := checkAPT(h); err != nil {
		return Change{}, err
	}
	out, err := h.Run(ctx, "dpkg-query", "-W", "-f=${Status}", s.Name)
	if err == nil && strings.HasPrefix(string(out), "install ok installed") {
		return Change{}, nil
	}
	w.Touch(dpkgStatus)
	return Change{Action: Create, Kind: "package", Name: s.Name}, nil
}

// dpkgStatus is the path that a step touches if a package will be installed, because the package may contain any file.
const dpkgStatus = "/var/lib/dpkg/status"

// Apply installs the package. It updates the package lists only if that fails.
func (s *Package) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, aptInstallTimeout)
	defer cancel()
	if _, err := runAPT(ctx, h, "install", "-y", "--no-install-recommends", s.Name); err == nil {
		return nil
	}
	if _, err := runAPT(ctx, h, "update"); err != nil {
		return err
	}
	_, err := runAPT(ctx, h, "install", "-y", "--no-install-recommends", s.Name)
	return err
}

// packageLists is the directory of apt's package lists.
const packageLists = "/var/lib/apt/lists"

// PackageLists updates package lists that are older than a day.
type PackageLists struct{}

// Label returns a fixed text.
func (*PackageLists) Label() string { return "lists of packages" }

// Check checks the age of the lists by their directory, which every update modifies.
func (*PackageLists) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, aptQueryTimeout)
	defer cancel()
	if err := checkAPT(h); err != nil {
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

// Apply updates the lists.
func (*PackageLists) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, aptInstallTimeout)
	defer cancel()
	if _, err := runAPT(ctx, h, "update", "-o", "APT::Update::Error-Mode=any"); err != nil {
		return err
	}
	_, err := h.Run(ctx, "touch", packageLists)
	return err
}

// Upgrade upgrades the distribution's packages to the versions in the package lists.
type Upgrade struct {
	Security bool `json:"security,omitempty"` // only packages from the security archive
}

// Label returns a fixed text.
func (*Upgrade) Label() string { return "upgrade of packages" }

// Check simulates the upgrade. If the lists are updated in the same walk, it reports nothing, because the user has not
// seen the new versions in a plan.
func (s *Upgrade) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	if len(w.Touched([]string{packageLists})) > 0 {
		return Change{}, nil
	}
	list, err := s.upgrades(ctx, h)
	if err != nil || len(list) == 0 {
		return Change{}, err
	}
	c := Change{Action: Update, Kind: KindUpgrade, Name: fmt.Sprintf("of %d packages", len(list))}
	if len(list) == 1 {
		c.Name = "of 1 package"
	}
	for _, u := range list {
		c.Diff = append(c.Diff, fmt.Sprintf("%s: %s → %s", u.name, u.from, u.to))
	}
	return c, nil
}

// KindUpgrade and KindReboot are the kinds of changes that take a whole machine out of service.
const (
	KindUpgrade = "upgrade"
	KindReboot  = "reboot"
)

// Apply installs the versions that Check has found.
func (s *Upgrade) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	list, err := s.upgrades(ctx, h)
	if err != nil || len(list) == 0 {
		return err
	}
	args := []string{"install", "-y", "--only-upgrade", "--no-remove"}
	for _, u := range list {
		args = append(args, u.name+"="+u.to)
	}
	ctx, cancel := context.WithTimeout(ctx, aptInstallTimeout)
	defer cancel()
	if _, err := runAPT(ctx, h, args...); err != nil {
		_, again := runAPT(ctx, h, "update") // an archive has only the newest versions, so the lists may be outdated
		return errors.Join(fmt.Errorf("upgrade packages: %w. The lists were updated: plan again, and see to "+
			"dpkg --audit there if this stays", err), again)
	}
	return nil
}

type upgrade struct{ name, from, to string }

func (s *Upgrade) upgrades(ctx context.Context, h host.Host) ([]upgrade, error) {
	ctx, cancel := context.WithTimeout(ctx, aptQueryTimeout)
	defer cancel()
	if err := checkAPT(h); err != nil {
		return nil, err
	}
	out, err := runAPT(ctx, h, "--simulate", "--no-remove", "--with-new-pkgs", "upgrade")
	if err != nil {
		return nil, fmt.Errorf("work out what can be upgraded: %w", err)
	}
	return parseSimulated(out, s.Security), nil
}

// installLine matches a line of a simulated upgrade: the package, the installed version, and the new version with its
// origins.
var installLine = regexp.MustCompile(`^Inst (\S+) \[(\S+)\] \((\S+) ([^)]*)\)`)

// parseSimulated parses a simulated upgrade. New packages that an upgrade requires are not listed.
func parseSimulated(out []byte, security bool) (list []upgrade) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := installLine.FindStringSubmatch(lines.Text())
		if m == nil || security && !strings.Contains(strings.ToLower(m[4]), "-security") {
			continue
		}
		list = append(list, upgrade{m[1], m[2], m[3]})
	}
	slices.SortFunc(list, func(a, b upgrade) int { return strings.Compare(a.name, b.name) })
	return list
}
