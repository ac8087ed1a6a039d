package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"clusterctl/daemons/kubelet/volume"
)

// checks run one after the other on each file system. Those with bounds run only on file systems with quotas.
var checks = []struct {
	name   string
	bounds bool
	do     func(n *node) error
}{
	{"a volume keeps what is written into it and goes with it", false, checkData},
	{"who fills a volume is stopped, and a neighbour writes on", true, checkLimitStops},
	{"a volume grows, and no further than its file system", true, checkGrow},
	{"a volume that was there before is bounded with what is in it", true, checkAdoption},
	{"no two volumes have the same project", true, checkDistinctProjects},
	{"what a container says of its directory's project is not believed", true, checkSuspects},
	{"a kubelet that is killed leaves nothing wrong", false, checkKills},
}

func (s fileSystem) run(do func(n *node) error) error {
	n := newNode()
	err := do(n)
	if err == nil && s.hasQuotas == (len(n.unbounded) > 0) {
		err = fmt.Errorf("told that volumes have no bounds: %q", n.unbounded)
	}
	if left, e := os.ReadDir(n.Provisioned); e == nil && err == nil && len(left) > 0 {
		err = fmt.Errorf("it leaves %v", left)
	}
	return errors.Join(err, os.RemoveAll(n.Provisioned), os.RemoveAll(n.Root))
}

func checkData(n *node) error {
	for round := range 3 {
		done, err := n.useVolume("pvc-a", 4*mebibyte)
		if err != nil {
			return err
		}
		at := "/mnt/kubelet/pods/pod-pvc-a/volumes/kubernetes.io~local-volume/v"
		file := filepath.Join(at, fmt.Sprint(round))
		if wrote, reason, err := fillFile(file, 64<<10); err != nil || wrote != 64<<10 || reason != "" {
			return fmt.Errorf("wrote %d: %s, %v", wrote, reason, err)
		}
		if files, err := os.ReadDir(at); err != nil || len(files) != round+1 {
			return fmt.Errorf("%v are there, %v", files, err)
		}
		if err := n.RemoveProvisioned("pvc-a", false, ""); !errors.Is(err, volume.ErrInUse) {
			return fmt.Errorf("removed in use: %w", err)
		}
		if err := done(); err != nil {
			return err
		}
	}
	return n.RemoveProvisioned("pvc-a", false, "")
}

func checkLimitStops(n *node) error {
	if err := n.createVolumes("pvc-a", "pvc-b"); err != nil {
		return err
	}
	wrote, reason, err := fillFile(n.volumePath("pvc-a")+"/f", 16*mebibyte)
	if err != nil || wrote > 4*mebibyte || wrote < 3*mebibyte || !isQuotaError(reason) {
		return fmt.Errorf("wrote %d: %s, %v", wrote, reason, err)
	}
	if wrote, reason, err := fillFile(n.volumePath("pvc-b")+"/f", 3*mebibyte); err != nil || wrote != 3*mebibyte ||
		reason != "" {
		return fmt.Errorf("the neighbour wrote %d: %s, %v", wrote, reason, err)
	}
	q, err := n.Projects.Quota(n.volumePath("pvc-a"))
	if err != nil || q.Bytes != 4*mebibyte || q.UsedBytes < 3*mebibyte || q.UsedBytes > 4*mebibyte ||
		q.Inodes != 1024 ||
		q.UsedInodes != 2 {
		return fmt.Errorf("it has %+v, %v", q, err)
	}
	before, err := readRecord(n, "pvc-a")
	if err != nil {
		return err
	}
	if err := n.removeAndCheck("pvc-a", "pvc-b"); err != nil {
		return err
	}
	return n.checkFree(before.ID)
}

// isQuotaError reports whether a quota stopped a writer. For a project quota, xfs reports that no space is left.
func isQuotaError(reason string) bool {
	return strings.Contains(reason, "disk quota exceeded") || strings.Contains(reason, "no space left")
}

func checkGrow(n *node) error {
	if err := n.createVolumes("pvc-a"); err != nil {
		return err
	}
	if err := n.GrowProvisioned("pvc-a", 1<<50); !errors.Is(err, volume.ErrTooLarge) {
		return fmt.Errorf("to a pebibyte: %w", err)
	}
	for range 2 {
		if err := n.GrowProvisioned("pvc-a", 8*mebibyte); err != nil {
			return err
		}
	}
	if wrote, reason, err := fillFile(n.volumePath("pvc-a")+"/f", 6*mebibyte); err != nil || wrote != 6*mebibyte {
		return fmt.Errorf("wrote %d: %s, %v", wrote, reason, err)
	}
	if err := n.GrowProvisioned("pvc-none", 8*mebibyte); err != nil {
		return fmt.Errorf("one that no pod has had: %w", err)
	}
	return n.removeAndCheck("pvc-a")
}

func checkAdoption(n *node) error {
	deep := filepath.Join(n.volumePath("pvc-a"), "deep", "deeper")
	if err := os.MkdirAll(deep, 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(deep, "f"), make([]byte, 6*mebibyte), 0o666); err != nil {
		return err
	}
	if err := errors.Join(os.Symlink("/", filepath.Join(deep, "link")), os.Chmod(deep, 0o777)); err != nil {
		return err
	}
	if err := n.createVolumes("pvc-a"); err != nil {
		return err
	}
	if q, err := n.Projects.Quota(n.volumePath("pvc-a")); err != nil || q.UsedBytes < 6*mebibyte ||
		q.Bytes != 4*mebibyte {
		return fmt.Errorf("it has %+v, %v", q, err)
	}
	if wrote, reason, err := fillFile(deep+"/more", 1*mebibyte); err != nil || !isQuotaError(reason) {
		return fmt.Errorf("wrote %d into what is full: %s, %v", wrote, reason, err)
	}
	return n.removeAndCheck("pvc-a")
}

func checkDistinctProjects(n *node) error {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("pvc-%d", i))
	}
	if err := n.createVolumes(names...); err != nil {
		return err
	}
	first, err := readRecord(n, names[0])
	if err != nil {
		return err
	}
	// This happens if an administrator copies a volume with its attributes.
	if err := volume.MachineProjects().SetRecord(n.volumePath(names[1]), first); err != nil {
		return err
	}
	if err := n.createVolumes(names...); err != nil {
		return err
	}
	seen := map[uint32]string{}
	for _, name := range names {
		r, err := readRecord(n, name)
		if err != nil || !r.Complete || seen[r.ID] != "" {
			return fmt.Errorf("%s has %+v as %q, %v", name, r, seen[r.ID], err)
		}
		seen[r.ID] = name
	}
	return n.removeAndCheck(names...)
}

func checkSuspects(n *node) error {
	if err := n.createVolumes("pvc-a", "pvc-b"); err != nil {
		return err
	}
	k := volume.MachineProjects()
	a, err := readRecord(n, "pvc-a")
	if err != nil {
		return err
	}
	b, err := readRecord(n, "pvc-b")
	if err != nil {
		return err
	}
	// The root user of a container may do this.
	if err := k.SetProject(n.volumePath("pvc-a"), b.ID); err != nil {
		return err
	}
	if err := n.createVolumes("pvc-a"); err != nil {
		return err
	}
	if got, err := k.Project(n.volumePath("pvc-a")); err != nil || got != a.ID {
		return fmt.Errorf("it is of project %d, not %d, %v", got, a.ID, err)
	}
	if err := k.SetProject(n.volumePath("pvc-a"), b.ID); err != nil {
		return err
	}
	if err := n.removeAndCheck("pvc-a"); err != nil {
		return err
	}
	if q, err := n.Projects.Quota(n.volumePath("pvc-b")); err != nil || q.Bytes != 4*mebibyte {
		return fmt.Errorf("the neighbour has %+v, %v", q, err)
	}
	return n.removeAndCheck("pvc-b")
}

// checkKills kills a process that creates, grows and removes volumes at random moments. After each kill it checks what
// the next process finds.
func checkKills(n *node) error {
	if err := n.createVolumes("pvc-kept"); err != nil {
		return err
	}
	if err := os.WriteFile(n.volumePath("pvc-kept")+"/f", []byte("precious"), 0o600); err != nil {
		return err
	}
	for round := range 25 {
		cmd := exec.Command("/proc/self/exe", "work")
		cmd.Stderr = os.Stdout
		if err := cmd.Start(); err != nil {
			return err
		}
		over := time.AfterFunc(time.Duration(30+rand.IntN(120))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		if over.Stop() {
			return fmt.Errorf("round %d: the work has ended by itself", round)
		}
		for _, name := range []string{"pvc-w", "pvc-x"} {
			if err := n.Teardown("pod-" + name); err != nil {
				return err
			}
		}
		if round%2 == 0 {
			if err := n.createVolumes("pvc-w", "pvc-x"); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if err := n.checkBounded("pvc-w", "pvc-x"); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		if err := n.removeAndCheck("pvc-w", "pvc-x"); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		left, err := os.ReadDir(n.Provisioned)
		if err != nil || len(left) != 1 {
			return fmt.Errorf("round %d: it leaves %v, %v", round, left, err)
		}
		if data, err := os.ReadFile(n.volumePath("pvc-kept") + "/f"); err != nil || string(data) != "precious" {
			return fmt.Errorf("round %d: the neighbour has %q, %v", round, data, err)
		}
	}
	return n.removeAndCheck("pvc-kept")
}

// runWork is the process that survives kills.
func runWork() {
	n := newNode()
	for size := int64(4 * mebibyte); ; size += mebibyte {
		for _, name := range []string{"pvc-w", "pvc-x"} {
			if err := n.createVolumes(name); err != nil {
				fmt.Println("make:", err)
			}
			if err := os.WriteFile(n.volumePath(name)+"/f", []byte("x"), 0o600); err != nil {
				fmt.Println("write:", err)
			}
			if err := n.GrowProvisioned(name, size%(8*mebibyte)+mebibyte); err != nil {
				fmt.Println("grow:", err)
			}
		}
		if err := n.removeAndCheck("pvc-w", "pvc-x"); err != nil {
			fmt.Println("remove:", err)
		}
	}
}

// checkBounded checks that volumes have a quota of 4 MiB, if the file system supports quotas.
func (n *node) checkBounded(names ...string) error {
	for _, name := range names {
		if q, err := n.Projects.Quota(n.volumePath(name)); !errors.Is(err, volume.ErrNoQuota) &&
			(err != nil || q.Bytes != 4*mebibyte) {
			return fmt.Errorf("%s has %+v, %v", name, q, err)
		}
	}
	return nil
}

// removeAndCheck removes volumes, and checks that their projects are free.
func (n *node) removeAndCheck(names ...string) error {
	for _, name := range names {
		r, err := readRecord(n, name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := n.RemoveProvisioned(name, false, ""); err != nil {
			return err
		}
		if _, err := os.Lstat(n.volumePath(name)); !os.IsNotExist(err) {
			return fmt.Errorf("%s is there still: %w", name, err)
		}
		if err := n.checkFree(r.ID); err != nil {
			return err
		}
	}
	return nil
}

func readRecord(n *node, name string) (volume.Record, error) {
	return volume.MachineProjects().Record(n.volumePath(name))
}

// checkFree checks that a project no longer has a limit.
func (n *node) checkFree(id uint32) error {
	k := volume.MachineProjects()
	if id == 0 || k.CheckEnforced(n.Provisioned) != nil {
		return nil
	}
	if q, err := k.Quota(n.Provisioned, id); err != nil || q.Bytes != 0 || q.Inodes != 0 {
		return fmt.Errorf("project %d has %+v still, %v", id, q, err)
	}
	return nil
}
