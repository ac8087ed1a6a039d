package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"clusterctl/provision/host"
)

// MachineRelease describes a machine for the check of an update.
type MachineRelease struct {
	Address        string
	HasServer      bool         // it has an API server
	HasKubelet     bool         // it is a node
	From           host.Release // zero if unknown
	ChangesRelease bool         // this run changes its release
}

// Maximum differences in minor versions of Kubernetes: how much older kubelets may be than API servers, and how far API
// servers may differ.
const (
	kubeletSkew = 3
	serverSkew  = 1
)

// CheckSkew returns why machines may not change to a release, or nil if they may. The control plane changes first, one
// machine at a time, and then the nodes. At every moment, API servers may differ by at most one minor version. No
// kubelet may be newer than an API server, or older by more than three minor versions. list has all machines, including
// those that do not change.
func CheckSkew(to host.Release, list []MachineRelease) error {
	target, err := version.ParseSemantic(to.Kubernetes)
	if err != nil {
		return fmt.Errorf("release %s does not say its version of Kubernetes: %w", to, err)
	}
	minor := func(u MachineRelease) (int, bool) {
		v, err := version.ParseSemantic(u.From.Kubernetes)
		if err != nil { // the release was not recorded
			return 0, false
		}
		return int(v.Minor()) + 1000*int(v.Major()), true
	}
	want := int(target.Minor()) + 1000*int(target.Major())
	servers := slices.ContainsFunc(list, func(u MachineRelease) bool { return u.HasServer && u.ChangesRelease })
	var errs []error
	refuse := func(u MachineRelease, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", u.Address, fmt.Sprintf(format, args...)))
	}
	for _, u := range list {
		current, ok := minor(u)
		switch {
		case !ok:
		case u.HasServer && servers && (current-want > serverSkew || want-current > serverSkew):
			refuse(u, "its API server is of Kubernetes %s, and others would be of %s meanwhile: they may be one minor "+
				"version apart. Update by way of each minor version between", u.From.Kubernetes, to.Kubernetes)
		case u.HasServer && !u.ChangesRelease && current < want &&
			slices.ContainsFunc(list,
				func(n MachineRelease) bool { return n.ChangesRelease && n.HasKubelet && !n.HasServer }):
			refuse(u, "its API server would stay at Kubernetes %s while kubelets go to %s, and no kubelet may be "+
				"newer than an API server. Update the control plane first, all of it", u.From.Kubernetes, to.Kubernetes)
		case u.HasKubelet && servers && current > want:
			refuse(u, "its kubelet is of Kubernetes %s and may not be newer than an API server, which would be of %s: "+
				"bring the nodes there first, with -target", u.From.Kubernetes, to.Kubernetes)
		case u.HasKubelet && servers && want-current > kubeletSkew:
			refuse(u, "its kubelet is of Kubernetes %s, and may be three minor versions older than an API server, "+
				"which would be of %s: bring it nearer first", u.From.Kubernetes, to.Kubernetes)
		}
	}
	return errors.Join(errs...)
}

// CheckDowngrade returns why machines may not change to an older release. It returns nil if none does, or if allowed is
// the older release's version or build. history has the releases of the cluster, oldest first.
func CheckDowngrade(to host.Release, list []MachineRelease, history []host.Release, allowed string) error {
	if allowed != "" && (allowed == to.Version || allowed == to.Build) {
		return nil
	}
	var where []string
	var from host.Release
	for _, u := range list {
		if u.ChangesRelease && isOlder(to, u.From, history) {
			where, from = append(where, u.Address), u.From
		}
	}
	if len(where) == 0 {
		return nil
	}
	const maximum = 3
	shown := strings.Join(where[:min(maximum, len(where))], ", ")
	if more := len(where) - maximum; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	name, before := ReleaseNames(to, from)
	err := fmt.Errorf("%s would go back from %s to %s: an older release may not read what a newer one has written, "+
		"and lacks what it has mended. If that is meant, say so: -allow-downgrade %s", shown, before, name,
		downgradeArgument(to, from))
	if allowed != "" {
		err = fmt.Errorf("%w (-allow-downgrade names %s, and this is another release)", err, allowed)
	}
	return err
}

// downgradeArgument returns the argument of -allow-downgrade for a release.
func downgradeArgument(to, from host.Release) string {
	if to.Version == from.Version {
		return to.Build
	}
	return to.Version
}

// ReleaseNames returns the names of two releases: their versions, with the builds if the versions are the same.
func ReleaseNames(a, b host.Release) (string, string) {
	name := func(r host.Release) string {
		switch {
		case r == (host.Release{}):
			return "an earlier release"
		case a.Version == b.Version:
			return r.String()
		}
		return r.Version
	}
	return name(a), name(b)
}

// isOlder compares Kubernetes versions first, and then the releases' own versions. If those cannot be ordered, such as
// versions of commits, the release that the cluster had first is older.
func isOlder(to, from host.Release, history []host.Release) bool {
	if from == (host.Release{}) || to.Build == from.Build {
		return false
	}
	a, errA := version.ParseSemantic(to.Kubernetes)
	b, errB := version.ParseSemantic(from.Kubernetes)
	if errA == nil && errB == nil && a.LessThan(b) != b.LessThan(a) {
		return a.LessThan(b)
	}
	if order, comparable := compareVersions(to.Version, from.Version); comparable && order != 0 {
		return order < 0
	}
	at := func(r host.Release) int {
		return slices.IndexFunc(history, func(h host.Release) bool { return h.Build == r.Build })
	}
	return at(to) >= 0 && at(to) < at(from)
}

// describedVersion matches a version as git describe prints it: a tag and the number of commits since.
var describedVersion = regexp.MustCompile(`^(v?\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)[.\d]*)?)(?:-(\d+)-g[0-9a-f]+)?(?:-dirty)?$`)

func compareVersions(a, b string) (order int, comparable bool) {
	x, y := describedVersion.FindStringSubmatch(a), describedVersion.FindStringSubmatch(b)
	if x == nil || y == nil {
		return 0, false
	}
	v, err := version.ParseSemantic(x[1])
	if err != nil {
		return 0, false
	}
	if order, err = v.Compare(y[1]); err != nil || order != 0 {
		return order, err == nil
	}
	n, _ := strconv.Atoi(x[2]) // 0 if absent
	m, _ := strconv.Atoi(y[2])
	return n - m, true
}
