package volume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeProjects is a ProjectKernel in memory. It fails permanently after a number of calls, to simulate a killed
// kubelet.
type fakeProjects struct {
	records   map[uint64]Record // by inode, because a directory may be renamed
	projects  map[uint64]uint32
	limits    map[uint32]Quota
	callsLeft int // calls until it fails; negative means never
}

var errKilled = errors.New("killed")

func inodeOf(path string) uint64 {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return 0
	}
	return st.Ino
}

func (d *fakeProjects) step() error {
	if d.callsLeft == 0 {
		return errKilled
	}
	d.callsLeft--
	return nil
}

func (d *fakeProjects) CheckEnforced(string) error { return nil }
func (d *fakeProjects) Record(dir string) (Record, error) {
	if _, err := os.Lstat(dir); err != nil {
		return Record{}, err
	}
	return d.records[inodeOf(dir)], d.step()
}
func (d *fakeProjects) SetRecord(dir string, r Record) error {
	if err := d.step(); err != nil {
		return err
	}
	d.records[inodeOf(dir)] = r
	return nil
}
func (d *fakeProjects) Project(dir string) (uint32, error) { return d.projects[inodeOf(dir)], d.step() }
func (d *fakeProjects) SetProject(dir string, id uint32) error {
	if err := d.step(); err != nil {
		return err
	}
	d.projects[inodeOf(dir)] = id
	return nil
}
func (d *fakeProjects) Quota(_ string, id uint32) (Quota, error) { return d.limits[id], d.step() }
func (d *fakeProjects) SetLimit(_ string, id uint32, bytes, inodes uint64) error {
	if err := d.step(); err != nil {
		return err
	}
	if d.limits[id] = (Quota{Bytes: bytes, Inodes: inodes}); bytes == 0 {
		delete(d.limits, id)
	}
	return nil
}

// A kubelet that is killed at any call while it creates, grows or removes a volume leaves a state that the next one
// completes.
func TestAnInterruptedVolumeOperationIsCompletedLater(t *testing.T) {
	for _, what := range []string{"make", "grow", "remove"} {
		for after := range 12 {
			d := &fakeProjects{
				records:   map[uint64]Record{},
				projects:  map[uint64]uint32{},
				limits:    map[uint32]Quota{},
				callsLeft: -1,
			}
			m := &Manager{
				Root:        t.TempDir(),
				Provisioned: filepath.Join(t.TempDir(), "volumes"),
				Mounter:     Plain{},
				Projects:    &Projects{Kernel: d},
			}
			act := map[string]func() error{
				"make":   func() error { return m.makeProvisioned("pvc-1", 1<<20) },
				"grow":   func() error { return m.GrowProvisioned("pvc-1", 2<<20) },
				"remove": func() error { return m.RemoveProvisioned("pvc-1", false, "") },
			}
			if err := m.makeProvisioned("pvc-2", 1<<20); err != nil {
				t.Fatal(err)
			}
			if what != "make" {
				if err := act["make"](); err != nil {
					t.Fatal(err)
				}
			}
			d.callsLeft = after
			if err := act[what](); err != nil && !errors.Is(err, errKilled) {
				t.Fatalf("%s, killed after %d: %v", what, after, err)
			}
			d.callsLeft = -1
			m = &Manager{Root: m.Root, Provisioned: m.Provisioned, Mounter: Plain{}, Projects: &Projects{Kernel: d}}
			if err := act[what](); err != nil {
				t.Fatalf("%s again, killed after %d: %v", what, after, err)
			}
			if want := map[string]int{"make": 2, "grow": 2, "remove": 1}[what]; len(d.limits) != want {
				t.Errorf("%s, killed after %d: %d projects have limits: %v", what, after, len(d.limits), d.limits)
			}
			if err := m.RemoveProvisioned("pvc-1", false, ""); err != nil {
				t.Fatal(err)
			}
			if left, err := os.ReadDir(m.Provisioned); err != nil || len(left) != 1 || len(d.limits) != 1 {
				t.Errorf("%s, killed after %d: it leaves %v and %v, %v", what, after, left, d.limits, err)
			}
		}
	}
}
