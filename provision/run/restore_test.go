package run_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/state"
)

// newThreeWorld returns a world with three control-plane machines, whose agents answer requests about etcd.
func newThreeWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, machine("a", "10.0.0.1", config.RoleControlPlane),
		machine("b", "10.0.0.2", config.RoleControlPlane), machine("c", "10.0.0.3", config.RoleControlPlane))
	members := hostfake.NewEtcd()
	for _, h := range w.hosts {
		h.Store = members
	}
	w.mustApply()
	for address, h := range w.hosts {
		h.AnswerStore = w.answerStore(address)
	}
	return w
}

const snapshotName = "etcd-20260101T000000Z-b"

// answerStore returns the answers of a machine's program etcd: members answer where their unit runs, and b has a
// snapshot.
func (w *world) answerStore(address string) func(store.Request) (store.Answer, error) {
	return func(q store.Request) (a store.Answer, err error) {
		snapshot := store.Snapshot{
			Name:       snapshotName,
			Taken:      time.Unix(1, 0),
			SHA256:     "digest",
			Revision:   7,
			Keys:       3,
			Cluster:    "c1",
			In:         []string{"local"},
			Encryption: map[string][]string{"secretbox:v1:old": {"secrets"}},
		}
		switch q.Op {
		case store.Status:
			for _, name := range []string{"a", "b", "c"} {
				m := store.Member{Name: name}
				if u, _ := w.hosts["machine."+name].Unit(context.Background(), "etcd.service"); u.Active != "active" {
					m.Error = "nothing listens"
				}
				if q.Endpoints[name] == "" {
					m.Error = "it was not asked"
				}
				a.Members = append(a.Members, m)
			}
		case store.List:
			if address == "machine.b" {
				a.Snapshots = []store.Snapshot{snapshot}
			}
		case store.Check, store.FromData:
			a.Snapshots = []store.Snapshot{snapshot}
		case store.Save:
			snapshot.Name, snapshot.Reason = "saved", q.Reason // the reason for the snapshot
			a.Snapshots = []store.Snapshot{snapshot}
		default:
			err = errors.New("not known here")
		}
		return a, err
	}
}

// loseDisks replaces the disk of machines, so that etcd's data is lost.
func (w *world) loseDisks(names ...string) {
	w.t.Helper()
	for _, n := range names {
		h := w.hosts["machine."+n]
		if err := errors.Join(h.Stop(context.Background(), "etcd.service"),
			h.RemoveAll("/var/lib/etcd/member")); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) restore(r etcd.Restore) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return w.engine.Restore(ctx, r)
}

func (w *world) state() *state.State {
	w.t.Helper()
	s, err := w.engine.Store.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// addFormerKey adds to the state, as a former key, the key with which the snapshot was written.
func (w *world) addFormerKey() {
	w.t.Helper()
	s := w.state()
	s.Keys.Encryption.Former = []state.EncryptionKey{{Provider: "secretbox", Name: "old", Secret: make([]byte, 32)}}
	if err := w.engine.Store.Write(s); err != nil {
		w.t.Fatal(err)
	}
}

func checkRefused(t *testing.T, err error, message string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), message) {
		t.Errorf("it is not refused with %q: %v", message, err)
	}
}

// Neither apply nor a restore deletes remaining data of etcd unless the user names it.
// Proves S10.
func TestDataOfTheStoreIsDeletedOnlyIfNamed(t *testing.T) {
	w := newThreeWorld(t)
	w.addFormerKey()
	checkRefused(t, w.restore(etcd.Restore{}), "the store works, 3 of 3 members answer")
	checkRefused(t, w.restore(etcd.Restore{Name: snapshotName}), "-allow-data-loss etcd")
	w.loseDisks("a", "b")
	if err := w.hosts["machine.c"].Stop(t.Context(), "etcd.service"); err != nil {
		t.Fatal(err)
	}
	checkRefused(t, w.restore(etcd.Restore{}), "use -from-member c")
	_, err := w.apply()
	checkRefused(t, err, "clusterctl etcd snapshot restore -from-member c")
	w.unreachable["machine.c"] = errors.New("no route")
	checkRefused(t, w.restore(etcd.Restore{}), "may still serve the former store")
	delete(w.unreachable, "machine.c")
	for name, h := range w.hosts {
		if slices.ContainsFunc(h.Log, func(l string) bool { return l == "store restore" }) {
			t.Errorf("%s was restored", name)
		}
	}
	w.loseDisks("c")
	_, err = w.apply()
	checkRefused(t, err, "clusterctl etcd snapshot restore brings it back from a snapshot")
}

func TestTheStoreIsRestoredFromTheLastSnapshotAfterAllDisksAreLost(t *testing.T) {
	w := newThreeWorld(t)
	w.loseDisks("a", "b", "c")
	checkRefused(t, w.restore(etcd.Restore{}), "encrypted with secretbox:v1:old, which the state does not have")
	w.addFormerKey()
	before := w.state()
	if err := w.restore(etcd.Restore{}); err != nil {
		t.Fatal(err)
	}
	w.checkServed("b")
	after := w.state()
	if after.Token == before.Token || after.EtcdCluster != "c2" || !slices.Equal(after.FormerStores, []string{"c1"}) ||
		after.Restore != nil {
		t.Errorf("the store was %s and is %s, its token %s and %s; restoring: %+v", after.FormerStores,
			after.EtcdCluster, before.Token, after.Token, after.Restore)
	}
	order := w.hosts["machine.b"].Log
	stop, laid := slices.Index(order, "stop kube-apiserver.service"), slices.Index(order, "store restore")
	if stop < 0 || laid < stop {
		t.Errorf("the store is created while API servers run: %d, %d", stop, laid)
	}
}

// checkServed checks that all members are running, and that first began a new etcd cluster.
func (w *world) checkServed(first string) {
	w.t.Helper()
	s := w.state()
	if len(s.Etcd) != 3 || s.Etcd[first].Existing || s.Etcd[first].InitialCluster == "" {
		w.t.Errorf("members are %+v", s.Etcd)
	}
	for address, h := range w.hosts {
		for _, unit := range []string{"etcd.service", "kube-apiserver.service"} {
			if u, err := h.Unit(context.Background(), unit); err != nil || u.Active != "active" {
				w.t.Errorf("%s: %s is %s, %v", address, unit, u.Active, err)
			}
		}
	}
	if p := w.mustApply(); !p.IsEmpty() {
		w.t.Errorf("not as declared afterwards: %+v", p)
	}
}

func TestTheStoreIsRestoredFromTheDataOfTheLastMember(t *testing.T) {
	w := newThreeWorld(t)
	w.addFormerKey()
	w.loseDisks("a", "b")
	if err := w.restore(etcd.Restore{Member: "c"}); err != nil {
		t.Fatal(err)
	}
	w.checkServed("c")
	kept := slices.ContainsFunc(w.hosts["machine.c"].Files(),
		func(f string) bool { return strings.HasPrefix(f, "/var/lib/etcd/former-") })
	if !kept {
		t.Error("the former data is not there any more")
	}
}

// Each restore begins above the revisions of the last restore, even with a snapshot from before it.
func TestEachRestoreStartsAtAHigherRevision(t *testing.T) {
	w := newThreeWorld(t)
	w.addFormerKey()
	last := int64(0)
	for range 3 {
		if err := w.restore(etcd.Restore{AllowsLoss: true}); err != nil {
			t.Fatal(err)
		}
		s := w.state()
		if s.Revision < last+1_000_000_000 {
			t.Errorf("revisions begin at %d, and began at %d before", s.Revision, last)
		}
		last = s.Revision
	}
}

// A restore that is interrupted at any point can be repeated, with the same result.
func TestInterruptedRestoresAreRepeated(t *testing.T) {
	for _, cut := range []string{"restore", "etcd.service"} {
		t.Run(cut, func(t *testing.T) {
			w := newThreeWorld(t)
			w.addFormerKey()
			w.loseDisks("a", "b", "c")
			b := w.hosts["machine.b"]
			if cut == "restore" {
				b.RestoreError = errors.New("cut off")
			} else {
				b.StartErrors = map[string]error{cut: errors.New("cut off")}
			}
			if err := w.restore(etcd.Restore{}); err == nil {
				t.Fatal("it was not cut off")
			}
			if cut == "restore" {
				_, err := w.apply()
				checkRefused(t, err, "run clusterctl etcd snapshot restore again")
			}
			b.RestoreError, b.StartErrors = nil, nil
			if err := w.restore(etcd.Restore{}); err != nil {
				t.Fatal(err)
			}
			w.checkServed("b")
		})
	}
}

// A failed daemon on a control-plane machine does not keep the machines from being changed. That machine is changed
// first, and the change of the others depends on its state afterwards. The same holds for a member that returns with a
// new disk, and for daemons that the former release does not start.
// Proves S10.
func TestMachinesThatAreDownDoNotBlockTheOthers(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a setting": func(w *world) { w.engine.Config.Etcd.Quota = 1 << 30 },
		"an update": func(w *world) { w.setRelease("v2") },
	} {
		for what, harm := range map[string]func(*world){
			"a new disk": func(w *world) { w.loseDisks("c") },
			"dead daemons": func(w *world) {
				w.hosts["machine.c"].FailUnit("etcd.service")
				w.hosts["machine.c"].FailUnit("kube-apiserver.service")
			},
		} {
			t.Run(name+" and "+what, func(t *testing.T) {
				w := newThreeWorld(t)
				w.engine.Config.Roll = config.Roll{Hold: 300 * time.Millisecond}
				harm(w)
				change(w)
				for _, h := range w.hosts {
					h.Log, h.AnswerError = nil, w.daemonError
				}
				w.mustApply()
				w.checkServed("a")
				for _, name := range []string{"a", "b"} {
					if log := w.hosts["machine."+name].Log; !slices.Contains(log, "restart etcd.service") &&
						!slices.Contains(log, "restart kube-apiserver.service") {
						t.Errorf("%s was not changed: %q", name, log)
					}
				}
			})
		}
	}
}

// If a restore was interrupted after its last step, an apply that has nothing to do marks it as ended, so that the next
// loss is noticed.
func TestRestoresInterruptedAtTheirEndAreComplete(t *testing.T) {
	w := newThreeWorld(t)
	w.addFormerKey()
	w.loseDisks("a", "b", "c")
	if err := w.restore(etcd.Restore{}); err != nil {
		t.Fatal(err)
	}
	s := w.state()
	s.Restore = &state.Restore{Snapshot: "etcd.db", Machine: "b", HasFirstMember: true}
	if err := w.engine.Store.Write(s); err != nil {
		t.Fatal(err)
	}
	w.mustApply()
	if r := w.state().Restore; r != nil {
		t.Errorf("the state still has %+v", r)
	}
	w.loseDisks("b", "c")
	_, err := w.apply()
	checkRefused(t, err, "2 of 3 members of the store have lost their data")
}

func TestPlansAnnounceSnapshotsBeforeRiskyChanges(t *testing.T) {
	w := newThreeWorld(t)
	w.engine.Config.Etcd.Quota = 1 << 30
	p := w.mustApply()
	if !strings.Contains(p.Snapshot, "A snapshot of the store is taken before the restart of a's member") {
		t.Errorf("the plan says %q", p.Snapshot)
	}
	saves, first := 0, ""
	for address, h := range w.hosts {
		for _, l := range h.Log {
			if l == "store save" {
				saves, first = saves+1, address
			}
		}
	}
	if saves != 1 {
		t.Errorf("%d snapshots, the last on %s", saves, first)
	}
	// A full disk stops the run before any change, unless the user chooses to continue.
	w.engine.Config.Etcd.Quota = 2 << 30
	for address, h := range w.hosts {
		answer := w.answerStore(address)
		h.AnswerStore = func(q store.Request) (store.Answer, error) {
			if q.Op == store.Save {
				return store.Answer{}, errors.New("there is no room for a snapshot")
			}
			return answer(q)
		}
	}
	_, err := w.apply()
	checkRefused(t, err, "nothing is changed: a snapshot of the store has to be taken before")
	w.engine.SkipsSnapshot = true
	w.mustApply()
}

// A snapshot is also taken before most members leave the store at once.
func TestSnapshotsAreTakenBeforeMostMembersLeave(t *testing.T) {
	for name, roles := range map[string][]string{"demoted": {config.RoleNode}, "removed": nil} {
		t.Run(name, func(t *testing.T) {
			w := newThreeWorld(t)
			list := []config.Machine{w.engine.Config.Machines[0]}
			for _, m := range w.engine.Config.Machines[1:] {
				if m.Roles = roles; roles != nil {
					list = append(list, m)
				}
			}
			w.declare(list...)
			w.clusterAPI.nodeStatus = map[string]string{}
			var notes []string
			w.engine.Report = func(e report.Event) {
				if strings.Contains(e.Message, "snapshot of the store") {
					notes = append(notes, e.Message)
				}
			}
			w.mustApply()
			if len(notes) != 1 || !strings.HasPrefix(notes[0], "snapshot of the store: ") {
				t.Errorf("the run reports %q", notes)
			}
		})
	}
}

// The age of a snapshot in a file is read from the file, and not from the copy that was just sent to a machine.
func TestRestoresFromAFileStateItsAge(t *testing.T) {
	w := newThreeWorld(t)
	w.addFormerKey()
	w.loseDisks("a", "b", "c")
	for _, h := range w.hosts {
		answer := h.AnswerStore
		h.AnswerStore = func(q store.Request) (store.Answer, error) {
			a, err := answer(q)
			if q.Op == store.Check {
				a.Snapshots[0].Taken, a.Snapshots[0].Cluster = time.Now(), ""
			}
			return a, err
		}
	}
	file := filepath.Join(t.TempDir(), "kept.db")
	if err := os.WriteFile(file, []byte("snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	written := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	if err := os.Chtimes(file, written, written); err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte("snapshot")))
	requested := ""
	stop := errors.New("no")
	if err := w.restore(etcd.Restore{File: file, Digest: digest,
		Approve: func(text string) error { requested = text; return stop }}); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if !strings.Contains(requested, file+", a file of 2026-03-04T05:06:07Z (") {
		t.Errorf("asked: %s", requested)
	}
}
