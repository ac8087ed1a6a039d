package run_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/step"
)

// debianWorld is a cluster of a control plane and two nodes, with available updates of a kernel and a library.
type debianWorld struct {
	*world
	mu    sync.Mutex
	order []string // what happened to machines, in order
}

func newDebians(t *testing.T, system config.System) *debianWorld {
	w := &debianWorld{world: newWorld(t, controlMachine, machineA, machineB)}
	w.clusterAPI.nodeStatus = map[string]string{"control": "True", "a": "True", "b": "True"}
	for _, m := range []config.Machine{controlMachine, machineA, machineB} {
		h := w.hosts[m.Address]
		archive := map[string]hostfake.Offer{
			"libc6":       {Version: "2.36-9+deb12u7", Origin: "Debian-Security:12/stable-security"},
			"linux-image": {Version: "6.1.100-1", Origin: "Debian-Security:12/stable-security", NeedsReboot: true},
			"vim":         {Version: "9.1", Origin: "Debian:12.9/stable"},
			"nfs-common":  {Version: "2.6.2", Origin: "Debian:12.9/stable"},
		}
		h.Debian = &hostfake.Debian{
			Installed: map[string]string{"libc6": "2.36-9+deb12u4", "linux-image": "6.1.90-1", "vim": "9.0"},
			Archive:   archive,
			Lists:     archive,
		}
		if err := h.WriteFile("/usr/bin/dpkg-query", strings.NewReader(""), 0o755, 0, 0); err != nil {
			t.Fatal(err)
		}
		h.Reboot = func(*hostfake.Host) error {
			w.record("reboot " + m.Name)
			w.closeConnections(m)
			return nil
		}
	}
	w.engine.Report = func(e report.Event) {
		if e.Kind == report.Note {
			w.record(e.Machine + " " + e.Message)
		}
	}
	w.mustApply()
	w.order = nil
	w.engine.Config.System = system
	return w
}

func (w *debianWorld) record(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order = append(w.order, what)
}

func (w *debianWorld) packageVersions(m config.Machine) string {
	d := w.hosts[m.Address].Debian
	return fmt.Sprint(d.Installed["libc6"], " ", d.Installed["linux-image"], " ", d.Installed["vim"])
}

// Packages are upgraded and machines are rebooted, one control-plane machine and one node at a time, and nodes are
// drained first. The plan shows what changes and why. Afterwards nothing is left to do.
// Proves P03.
func TestSystemsAreUpgradedAndRebootedOneByOne(t *testing.T) {
	w := newDebians(t, config.System{Packages: []string{"nfs-common"}, Upgrade: config.UpgradeSecurity, Reboot: true})
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Plan.Machines, func(m plan.Machine) bool { return m.Address == machineA.Address })
	entry := p.Plan.Machines[i]
	p.Close()
	if want := "drain, since its packages are upgraded; upgrade packages, and reboot if these ask for " +
		"it"; entry.Note != want {
		t.Errorf("the plan says %q, want %q", entry.Note, want)
	}
	var diff []string
	for _, c := range entry.Changes {
		diff = append(diff, c.Kind+" "+c.Name)
		diff = append(diff, c.Diff...)
	}
	if want := []string{"package nfs-common", "upgrade of 2 packages", "libc6: 2.36-9+deb12u4 → " +
		"2.36-9+deb12u7", "linux-image: 6.1.90-1 → 6.1.100-1"}; !slices.Equal(diff, want) {
		t.Errorf("the plan has %q, want %q", diff, want)
	}
	w.mustApply()
	for _, m := range []config.Machine{controlMachine, machineA, machineB} {
		if got := w.packageVersions(m); got != "2.36-9+deb12u7 6.1.100-1 9.0" {
			t.Errorf("%s has %s", m.Name, got)
		}
		if w.hosts[m.Address].Debian.Installed["nfs-common"] == "" {
			t.Errorf("%s lacks a package", m.Name)
		}
	}
	var reboots []string
	for _, what := range w.order {
		if name, ok := strings.CutPrefix(what, "reboot "); ok {
			reboots = append(reboots, name)
		}
	}
	if reboots[0] != "control" || len(reboots) != 3 {
		t.Errorf("rebooted %v", reboots)
	}
	if slices.Sort(w.clusterAPI.drained); !slices.Equal(w.clusterAPI.drained, []string{"a", "b"}) ||
		len(w.clusterAPI.cordoned) > 0 {
		t.Errorf("drained %v, and %v take no pods", w.clusterAPI.drained, w.clusterAPI.cordoned)
	}
	if p := w.mustApply(); !p.IsEmpty() {
		t.Errorf("something is left to do: %+v", p.Machines)
	}
}

// A machine whose system requires a reboot is rebooted, unless reboots are disabled.
func TestMachinesAreRebootedWhenTheirSystemRequestsIt(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		w := newDebians(t, config.System{Reboot: wanted})
		h := w.hosts[machineB.Address]
		for name, text := range map[string]string{"/run/reboot-required": "***",
			"/run/reboot-required.pkgs": "linux-image\nlibc6\n"} {
			if err := h.WriteFile(name, strings.NewReader(text), 0o644, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		p := w.mustApply()
		if p.IsEmpty() == wanted {
			t.Errorf("wanted %t: the plan is %+v", wanted, p.Machines)
		}
		if got := slices.Contains(w.order, "reboot b"); got != wanted {
			t.Errorf("wanted %t, rebooted %t: %q", wanted, got, w.order)
		}
		if wanted &&
			(!slices.Equal(w.clusterAPI.drained, []string{"b"}) ||
				!slices.Contains(w.order, machineB.Address+" is back")) {
			t.Errorf("drained %v, did %q", w.clusterAPI.drained, w.order)
		}
	}
}

// While the maintenance window is closed, nothing is upgraded or rebooted, and the plan shows this. If the window
// closes during a run, the other machines are not changed.
func TestSystemUpgradesWaitForTheirWindow(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	w := newDebians(
		t,
		config.System{
			Upgrade: config.UpgradeAll,
			Reboot:  true,
			Window: &config.Window{
				Days: []time.Weekday{time.Monday},
				From: 2 * time.Hour,
				To:   4 * time.Hour,
				Zone: time.UTC,
			},
		},
	)
	w.engine.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	p := w.mustApply()
	if !p.IsEmpty() ||
		!slices.Contains(p.WaitingChanges,
			"upgrades and reboots of machines are not looked at: their window opens Mon 2026-11-23 02:00 UTC.") {
		t.Errorf("with a closed window the plan is %+v, %q", p.Machines, p.WaitingChanges)
	}
	now = now.Add(2 * time.Hour)
	for _, m := range []config.Machine{controlMachine, machineA, machineB} {
		w.hosts[m.Address].Reboot = func(*hostfake.Host) error {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(40 * time.Minute) // closes the window after two machines
			w.closeConnections(m)
			return nil
		}
	}
	w.mustApply()
	upgraded := 0
	for _, m := range []config.Machine{controlMachine, machineA, machineB} {
		if w.packageVersions(m) == "2.36-9+deb12u7 6.1.100-1 9.1" {
			upgraded++
		}
	}
	if upgraded != 2 || !slices.ContainsFunc(w.order, func(s string) bool {
		return strings.Contains(s, "the window for upgrades and reboots has closed meanwhile")
	}) {
		t.Errorf("%d were upgraded; %q", upgraded, w.order)
	}
	now = now.Add(7 * 24 * time.Hour).Add(-90 * time.Minute)
	w.mustApply()
	if p := w.mustApply(); !p.IsEmpty() {
		t.Errorf("in the next window something is left to do: %+v", p.Machines)
	}
}

// Old package lists are updated first. The updates are shown before they are installed.
func TestUpgradesFromNewPackageListsAreShownFirst(t *testing.T) {
	w := newDebians(t, config.System{Upgrade: config.UpgradeAll})
	for _, h := range w.hosts {
		h.Debian.IsOutdated, h.Debian.Lists = true, nil
	}
	p := w.mustApply()
	for _, m := range p.Machines {
		if len(m.Changes) != 1 || m.Changes[0].Kind != "lists" {
			t.Errorf("%s: %+v", m.Address, m.Changes)
		}
	}
	if got := w.packageVersions(machineA); got != "2.36-9+deb12u4 6.1.90-1 9.0" {
		t.Errorf("the installed packages %s are not recorded", got)
	}
	if len(w.clusterAPI.drained) > 0 {
		t.Errorf("drained %v for lists", w.clusterAPI.drained)
	}
	p = w.mustApply()
	if c := p.Machines[1].Changes; len(c) != 1 || c[0].Kind != step.KindUpgrade || len(c[0].Diff) != 3 {
		t.Errorf("then %+v", c)
	}
	if got := w.packageVersions(machineA); got != "2.36-9+deb12u7 6.1.100-1 9.1" {
		t.Errorf("then it has %s", got)
	}
	// The archive has a newer version than the package lists. The run does not install it, because the user has not
	// seen it in a plan.
	w.hosts[machineA.Address].Debian.Lists["vim"] = hostfake.Offer{Version: "9.2"}
	w.hosts[machineA.Address].Debian.Archive["vim"] = hostfake.Offer{Version: "9.3"}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "plan again") {
		t.Errorf("with lists that are behind: %v", err)
	}
	w.mustApply()
	if got := w.hosts[machineA.Address].Debian.Installed["vim"]; got != "9.3" {
		t.Errorf("then it has %s", got)
	}
}

// There is a pause after each node whose daemons restart, except the last.
func TestRunsPauseBetweenMachines(t *testing.T) {
	w := newDebians(t, config.System{Upgrade: config.UpgradeAll})
	w.engine.Config.Roll.Pause = 50 * time.Millisecond
	w.engine.Parallelism = 1
	w.mustApply()
	pauses := 0
	for _, what := range w.order {
		if strings.HasSuffix(what, "is done; the next machine's turn is in 50ms") {
			pauses++
		}
	}
	if pauses != 1 {
		t.Errorf("%d pauses for two nodes: %q", pauses, w.order)
	}
}
