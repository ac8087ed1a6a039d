package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/version"
	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/roll"
)

// setRelease makes the next runs use a build of that version, with this Kubernetes version.
func (w *world) setRelease(name string) { w.setReleaseVersions(name, version.Kubernetes) }

func (w *world) setReleaseVersions(name, kubernetes string) {
	w.t.Helper()
	programs, err := programsDir()
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	for _, other := range append(bundle.Programs(), "packed") {
		if other == bundle.Clusterctl {
			err = os.WriteFile(filepath.Join(dir, other), []byte("program clusterctl "+name), 0o755)
		} else {
			err = os.Symlink(filepath.Join(programs, other), filepath.Join(dir, other))
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	files, err := bundle.Open(filepath.Join(dir, bundle.Clusterctl), filepath.Join(dir, "cache"))
	if err != nil {
		w.t.Fatal(err)
	}
	files.Version, files.Kubernetes = name, kubernetes
	w.engine.Bundle = files
}

// libraryDir returns the directory of a build's programs on machines.
func (w *world) libraryDir() string {
	f, err := w.engine.Bundle.File(bundle.Clusterctl)
	if err != nil {
		w.t.Fatal(err)
	}
	return host.LibraryDir + "/" + f.Digest + "/"
}

// newUpdated returns a cluster of three control-plane machines and two nodes with release v1. The next runs use v2.
func newUpdated(t *testing.T) (w *world, v1, v2 string) {
	t.Helper()
	w = newWorld(t, threeControl()...)
	store := hostfake.NewEtcd("c1", "c2", "c3")
	for _, h := range w.hostsByIP {
		h.Store = store
	}
	w.setRelease("v1.0.0")
	w.engine.Config.Roll = config.Roll{Hold: 300 * time.Millisecond, Timeout: 2 * time.Second}
	w.clusterAPI.nodeStatus = map[string]string{"a": "True", "b": "True"}
	w.mustApply()
	v1 = w.libraryDir()
	w.setRelease("v2.0.0")
	return w, v1, w.libraryDir()
}

func threeControl() []config.Machine {
	return []config.Machine{
		machine("c1", "10.0.0.1", config.RoleControlPlane),
		machine("c2", "10.0.0.2", config.RoleControlPlane),
		machine("c3", "10.0.0.3", config.RoleControlPlane),
		machine("a", "10.0.0.4", config.RoleNode),
		machine("b", "10.0.0.5", config.RoleNode),
	}
}

// crashDaemons makes daemons of a release behave as the function crash.
func (w *world) crashDaemons(library string, crash func(ctx context.Context, unit string, ended func()) error) {
	for _, h := range w.hostsByIP {
		h.RunProgram = func(ctx context.Context, unit, program string, ended func()) error {
			if strings.HasPrefix(program, library) {
				return crash(ctx, unit, ended)
			}
			return nil
		}
	}
}

// unitsRunning returns the units of a machine that run programs of a release.
func (w *world) unitsRunning(address, library string) (units []string) {
	for _, name := range []string{"kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet",
		"kube-proxy", "kube-network"} {
		if u, err := w.hosts[address].Unit(context.Background(), name+".service"); err == nil && u.Active == "active" &&
			strings.HasPrefix(u.Program, library) {
			units = append(units, name)
		}
	}
	return units
}

func plannedMachine(p *plan.Plan, address string) plan.Machine {
	return p.Machines[slices.IndexFunc(p.Machines, func(m plan.Machine) bool { return m.Address == address })]
}

func TestUpdatesNameBothReleasesAndRemoveTheFormerOne(t *testing.T) {
	w, v1, v2 := newUpdated(t)
	p := w.mustApply()
	for _, m := range p.Machines {
		if m.FromRelease != "v1.0.0" || m.ToRelease != "v2.0.0" ||
			!strings.HasPrefix(m.Note, "update v1.0.0 to v2.0.0; restart ") {
			t.Errorf("%s: from %q to %q: %s", m.Address, m.FromRelease, m.ToRelease, m.Note)
		}
	}
	for address, h := range w.hosts {
		if len(w.unitsRunning(address, v2)) == 0 || len(w.unitsRunning(address, v1)) > 0 {
			t.Errorf("%s runs %v of the new and %v of the former release", address, w.unitsRunning(address, v2),
				w.unitsRunning(address, v1))
		}
		for _, f := range h.Files() {
			if strings.HasPrefix(f, v1) || strings.HasPrefix(f, host.SavedReleaseDir) {
				t.Errorf("%s: %s is left", address, f)
			}
		}
		if held, err := host.ReadRelease(h); err != nil || held == nil || held.Version != "v2.0.0" {
			t.Errorf("%s says that it has %v, %v", address, held, err)
		}
	}
	if p := w.mustApply(); !p.IsEmpty() {
		t.Errorf("not as declared afterwards: %+v", p.Machines)
	}
}

func TestBrokenBuildsAreRolledBackAndStopTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		unit  string // the unit that fails
		crash func(ctx context.Context, unit string, ended func()) error
		sick  string
		want  string
	}{
		"it ends at once": {unit: "kube-apiserver.service", want: "out of luck",
			crash: func(context.Context, string, func()) error { return errors.New("out of luck") }},
		"it hangs": {unit: "kube-apiserver.service", want: "deadline exceeded",
			crash: func(ctx context.Context, _ string, _ func()) error { <-ctx.Done(); return ctx.Err() }},
		"it ends later": {unit: "kube-scheduler.service", want: "kube-scheduler.service says why",
			crash: func(_ context.Context, _ string, ended func()) error {
				time.AfterFunc(100*time.Millisecond, ended)
				return nil
			}},
		"it is never ready": {unit: "kube-controller-manager.service", want: "not well",
			sick: "https://127.0.0.1:10257/readyz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, v1, v2 := newUpdated(t)
			w.crashDaemons(v2, func(ctx context.Context, unit string, ended func()) error {
				if unit != c.unit || c.crash == nil {
					return nil
				}
				return c.crash(ctx, unit, ended)
			})
			for _, h := range w.hostsByIP {
				h.AnswerError = func(url string) error {
					if u, err := h.Unit(context.Background(), c.unit); url == c.sick && err == nil &&
						strings.HasPrefix(u.Program, v2) {
						return errors.New("not ready")
					}
					return nil
				}
			}
			_, err := w.apply()
			var back *roll.RolledBackError
			if !errors.As(err, &back) || back.To != "v2.0.0" || back.From != "v1.0.0" ||
				!strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v", err)
			}
			for address, h := range w.hosts {
				if u, err := h.Unit(t.Context(), c.unit); strings.HasPrefix(address, "machine.c") &&
					(err != nil || u.Active != "active" || !strings.HasPrefix(u.Program, v1)) {
					t.Errorf("%s: %s is %+v, %v", address, c.unit, u, err)
				}
				if len(w.unitsRunning(address, v2)) > 0 {
					t.Errorf("%s runs %v of the release that does not work", address, w.unitsRunning(address, v2))
				}
				if address != "machine.c1" &&
					slices.ContainsFunc(h.Log, func(did string) bool { return strings.HasPrefix(did, "restart ") }) {
					t.Errorf("%s was touched: %v", address, h.Log)
				}
				if former, err := host.ReadSavedRelease(h); former != nil || err != nil {
					t.Errorf("%s: %+v is kept, %v", address, former, err)
				}
			}
			prepared, err := w.engine.Prepare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer prepared.Close()
			if last := plannedMachine(prepared.Plan, "machine.c1").LastFailure; !strings.Contains(last,
				"v2.0.0 was rolled back") ||
				!strings.Contains(last, c.want) {
				t.Errorf("the next plan says of it: %q", last)
			}
			// After the rollback the machine is in its former state.
			w.setRelease("v1.0.0")
			if p := w.mustApply(); !p.IsEmpty() {
				t.Errorf("not as before: %+v", plannedMachine(p, "machine.c1"))
			}
		})
	}
}

func TestNodesThatAreNotReadyAfterAnUpdateAreRolledBack(t *testing.T) {
	w, v1, _ := newUpdated(t)
	w.clusterAPI.kubelets = map[string]string{"a": "v1.36.0"} // the new kubelet never reports its version
	_, err := w.apply()
	if !errors.As(err, new(*roll.RolledBackError)) || !strings.Contains(err.Error(), "its node has Kubernetes "+
		"v1.36.0") {
		t.Fatal(err)
	}
	if !slices.Contains(w.unitsRunning("machine.a", v1), "kubelet") ||
		!slices.Contains(w.unitsRunning("machine.b", v1), "kubelet") {
		t.Errorf("the nodes run %v and %v of the former release", w.unitsRunning("machine.a", v1),
			w.unitsRunning("machine.b", v1))
	}
}

func TestUpdatesContinueAfterAFailureIfConfigured(t *testing.T) {
	w, v1, v2 := newUpdated(t)
	w.engine.Config.Roll.OnFailure = config.OnFailureContinue
	w.hosts["machine.a"].RunProgram = func(_ context.Context, unit, program string, _ func()) error {
		if unit == "kubelet.service" && strings.HasPrefix(program, v2) {
			return errors.New("not on this machine")
		}
		return nil
	}
	_, err := w.apply()
	if err == nil || !strings.Contains(err.Error(), "not on this machine") {
		t.Fatal(err)
	}
	if len(w.unitsRunning("machine.a", v2)) > 0 || len(w.unitsRunning("machine.a", v1)) == 0 ||
		!slices.Contains(w.unitsRunning("machine.b", v2), "kubelet") {
		t.Errorf("a runs %v of the new release, b %v", w.unitsRunning("machine.a", v2), w.unitsRunning("machine.b", v2))
	}
}

func TestKilledUpdatesContinueAndCanBeRolledBack(t *testing.T) {
	w, v1, v2 := newUpdated(t)
	killed := errors.New("killed")
	c1 := w.hosts["machine.c1"]
	c1.BeforeChange = func(what string) error {
		if strings.Contains(what, "restart kube-controller-manager") { // the run's process and its agent have ended
			return killed
		}
		return nil
	}
	// The rollback is interrupted as well.
	c1.RunProgram = func(_ context.Context, _, program string, _ func()) error {
		if strings.HasPrefix(program, v1) {
			return killed
		}
		return nil
	}
	if _, err := w.apply(); err == nil || !strings.Contains(err.Error(), "failed as well") {
		t.Fatal(err)
	}
	c1.BeforeChange, c1.RunProgram = nil, nil
	w.crashDaemons(v2, func(_ context.Context, unit string, _ func()) error {
		if unit == "kube-scheduler.service" {
			return errors.New("out of luck")
		}
		return nil
	})
	if _, err := w.apply(); !errors.As(err, new(*roll.RolledBackError)) {
		t.Fatal(err)
	}
	if len(w.unitsRunning("machine.c1", v2)) > 0 || len(w.unitsRunning("machine.c1", v1)) < 3 {
		t.Errorf("c1 runs %v of the former release and %v of the new", w.unitsRunning("machine.c1", v1),
			w.unitsRunning("machine.c1", v2))
	}
	w.crashDaemons(v2, func(context.Context, string, func()) error { return nil })
	w.mustApply()
	if len(w.unitsRunning("machine.c1", v1)) > 0 || len(w.unitsRunning("machine.c1", v2)) < 3 {
		t.Errorf("c1 runs %v of the former release and %v of the new", w.unitsRunning("machine.c1", v1),
			w.unitsRunning("machine.c1", v2))
	}
}

func TestDowngradesAreRefusedUnlessTheReleaseIsNamed(t *testing.T) {
	w, v1, _ := newUpdated(t)
	w.mustApply()
	w.setRelease("v1.0.0")
	_, err := w.engine.Prepare(t.Context())
	if err == nil || !strings.Contains(err.Error(), "would go back from v2.0.0 to v1.0.0") ||
		!strings.Contains(err.Error(), "-allow-downgrade v1.0.0") {
		t.Fatal(err)
	}
	w.engine.Downgrade = "v1.1.0"
	if _, err := w.engine.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "another release") {
		t.Fatal(err)
	}
	w.engine.Downgrade = "v1.0.0"
	w.mustApply()
	for address := range w.hosts {
		if len(w.unitsRunning(address, v1)) == 0 {
			t.Errorf("%s does not run the former release", address)
		}
	}
}

func TestUpdatesThatSkipAMinorVersionAreRefused(t *testing.T) {
	w, _, _ := newUpdated(t)
	w.setReleaseVersions("v3.0.0", "v1.39.0")
	if _, err := w.engine.Prepare(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "one minor version apart") {
		t.Fatal(err)
	}
}

func TestRepairedProgramsAreNotReportedAsUpdates(t *testing.T) {
	w, _, _ := newUpdated(t)
	w.mustApply()
	if err := w.hosts["machine.a"].Symlink("/bin/true", "/usr/local/bin/kubelet"); err != nil {
		t.Fatal(err)
	}
	prepared, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Close()
	p := prepared.Plan
	at := slices.IndexFunc(p.Machines, func(m plan.Machine) bool { return m.Address == "machine.a" })
	m := p.Machines[at]
	if !strings.HasPrefix(m.Note, "repair programs of v2.0.0") || m.FromRelease != "" {
		t.Errorf("the plan says %q, from %q to %q", m.Note, m.FromRelease, m.ToRelease)
	}
	for _, s := range p.Stages {
		if strings.Contains(s.Title, "new release") {
			t.Errorf("a stage is called %q", s.Title)
		}
	}
}
