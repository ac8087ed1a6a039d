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
	{"a volume keeps what is written into it and goes with it", false, keeps},
	{"who fills a volume is stopped, and a neighbour writes on", true, stops},
	{"a volume grows, and no further than its file system", true, grows},
	{"a volume that was there before is bounded with what is in it", true, adopts},
	{"no two volumes have the same project", true, differ},
	{"what a container says of its directory's project is not believed", true, suspects},
	{"a kubelet that is killed leaves nothing wrong", false, survives},
}

func (s system) run(do func(n *node) error) error {
	n := newNode()
	err := do(n)
	if err == nil && s.bounds == (len(n.unbounded) > 0) {
		err = fmt.Errorf("told that volumes have no bounds: %q", n.unbounded)
	}
	if left, e := os.ReadDir(n.Provisioned); e == nil && err == nil && len(left) > 0 {
		err = fmt.Errorf("it leaves %v", left)
	}
	return errors.Join(err, os.RemoveAll(n.Provisioned), os.RemoveAll(n.Root))
}

func keeps(n *node) error {
	for round := range 3 {
		done, err := n.use("pvc-a", 4*mebi)
		if err != nil {
			return err
		}
		at := "/mnt/kubelet/pods/pod-pvc-a/volumes/kubernetes.io~local-volume/v"
		file := filepath.Join(at, fmt.Sprint(round))
		if wrote, why, err := fill(file, 64<<10); err != nil || wrote != 64<<10 || why != "" {
			return fmt.Errorf("wrote %d: %s, %v", wrote, why, err)
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

func stops(n *node) error {
	if err := n.made("pvc-a", "pvc-b"); err != nil {
		return err
	}
	wrote, why, err := fill(n.at("pvc-a")+"/f", 16*mebi)
	if err != nil || wrote > 4*mebi || wrote < 3*mebi || !full(why) {
		return fmt.Errorf("wrote %d: %s, %v", wrote, why, err)
	}
	if wrote, why, err := fill(n.at("pvc-b")+"/f", 3*mebi); err != nil || wrote != 3*mebi || why != "" {
		return fmt.Errorf("the neighbour wrote %d: %s, %v", wrote, why, err)
	}
	q, err := n.Projects.Quota(n.at("pvc-a"))
	if err != nil || q.Bytes != 4*mebi || q.UsedBytes < 3*mebi || q.UsedBytes > 4*mebi || q.Inodes != 1024 ||
		q.UsedInodes != 2 {
		return fmt.Errorf("it has %+v, %v", q, err)
	}
	before, err := record(n, "pvc-a")
	if err != nil {
		return err
	}
	if err := n.gone("pvc-a", "pvc-b"); err != nil {
		return err
	}
	return n.free(before.ID)
}

// full reports whether a quota stopped a writer. For a project quota, xfs reports that no space is left.
func full(why string) bool {
	return strings.Contains(why, "disk quota exceeded") || strings.Contains(why, "no space left")
}

func grows(n *node) error {
	if err := n.made("pvc-a"); err != nil {
		return err
	}
	if err := n.GrowProvisioned("pvc-a", 1<<50); !errors.Is(err, volume.ErrTooLarge) {
		return fmt.Errorf("to a pebibyte: %w", err)
	}
	for range 2 {
		if err := n.GrowProvisioned("pvc-a", 8*mebi); err != nil {
			return err
		}
	}
	if wrote, why, err := fill(n.at("pvc-a")+"/f", 6*mebi); err != nil || wrote != 6*mebi {
		return fmt.Errorf("wrote %d: %s, %v", wrote, why, err)
	}
	if err := n.GrowProvisioned("pvc-none", 8*mebi); err != nil {
		return fmt.Errorf("one that no pod has had: %w", err)
	}
	return n.gone("pvc-a")
}

func adopts(n *node) error {
	deep := filepath.Join(n.at("pvc-a"), "deep", "deeper")
	if err := os.MkdirAll(deep, 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(deep, "f"), make([]byte, 6*mebi), 0o666); err != nil {
		return err
	}
	if err := errors.Join(os.Symlink("/", filepath.Join(deep, "link")), os.Chmod(deep, 0o777)); err != nil {
		return err
	}
	if err := n.made("pvc-a"); err != nil {
		return err
	}
	if q, err := n.Projects.Quota(n.at("pvc-a")); err != nil || q.UsedBytes < 6*mebi || q.Bytes != 4*mebi {
		return fmt.Errorf("it has %+v, %v", q, err)
	}
	if wrote, why, err := fill(deep+"/more", 1*mebi); err != nil || !full(why) {
		return fmt.Errorf("wrote %d into what is full: %s, %v", wrote, why, err)
	}
	return n.gone("pvc-a")
}

func differ(n *node) error {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("pvc-%d", i))
	}
	if err := n.made(names...); err != nil {
		return err
	}
	first, err := record(n, names[0])
	if err != nil {
		return err
	}
	// This happens if an administrator copies a volume with its attributes.
	if err := volume.MachineProjects().SetRecord(n.at(names[1]), first); err != nil {
		return err
	}
	if err := n.made(names...); err != nil {
		return err
	}
	seen := map[uint32]string{}
	for _, name := range names {
		r, err := record(n, name)
		if err != nil || !r.Complete || seen[r.ID] != "" {
			return fmt.Errorf("%s has %+v as %q, %v", name, r, seen[r.ID], err)
		}
		seen[r.ID] = name
	}
	return n.gone(names...)
}

func suspects(n *node) error {
	if err := n.made("pvc-a", "pvc-b"); err != nil {
		return err
	}
	k := volume.MachineProjects()
	a, err := record(n, "pvc-a")
	if err != nil {
		return err
	}
	b, err := record(n, "pvc-b")
	if err != nil {
		return err
	}
	// The root user of a container may do this.
	if err := k.SetProject(n.at("pvc-a"), b.ID); err != nil {
		return err
	}
	if err := n.made("pvc-a"); err != nil {
		return err
	}
	if is, err := k.Project(n.at("pvc-a")); err != nil || is != a.ID {
		return fmt.Errorf("it is of project %d, not %d, %v", is, a.ID, err)
	}
	if err := k.SetProject(n.at("pvc-a"), b.ID); err != nil {
		return err
	}
	if err := n.gone("pvc-a"); err != nil {
		return err
	}
	if q, err := n.Projects.Quota(n.at("pvc-b")); err != nil || q.Bytes != 4*mebi {
		return fmt.Errorf("the neighbour has %+v, %v", q, err)
	}
	return n.gone("pvc-b")
}

// survives kills a process that creates, grows and removes volumes at random moments. After each kill it checks what
// the next process finds.
func survives(n *node) error {
	if err := n.made("pvc-kept"); err != nil {
		return err
	}
	if err := os.WriteFile(n.at("pvc-kept")+"/f", []byte("precious"), 0o600); err != nil {
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
			if err := n.made("pvc-w", "pvc-x"); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if err := n.bounded("pvc-w", "pvc-x"); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		if err := n.gone("pvc-w", "pvc-x"); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		left, err := os.ReadDir(n.Provisioned)
		if err != nil || len(left) != 1 {
			return fmt.Errorf("round %d: it leaves %v, %v", round, left, err)
		}
		if data, err := os.ReadFile(n.at("pvc-kept") + "/f"); err != nil || string(data) != "precious" {
			return fmt.Errorf("round %d: the neighbour has %q, %v", round, data, err)
		}
	}
	return n.gone("pvc-kept")
}

// work is the process that survives kills.
func work() {
	n := newNode()
	for size := int64(4 * mebi); ; size += mebi {
		for _, name := range []string{"pvc-w", "pvc-x"} {
			if err := n.made(name); err != nil {
				fmt.Println("make:", err)
			}
			if err := os.WriteFile(n.at(name)+"/f", []byte("x"), 0o600); err != nil {
				fmt.Println("write:", err)
			}
			if err := n.GrowProvisioned(name, size%(8*mebi)+mebi); err != nil {
				fmt.Println("grow:", err)
			}
		}
		if err := n.gone("pvc-w", "pvc-x"); err != nil {
			fmt.Println("remove:", err)
		}
	}
}

// bounded checks that volumes have a quota of 4 MiB, if the file system supports quotas.
func (n *node) bounded(names ...string) error {
	for _, name := range names {
		if q, err := n.Projects.Quota(n.at(name)); !errors.Is(err, volume.ErrNoQuota) &&
			(err != nil || q.Bytes != 4*mebi) {
			return fmt.Errorf("%s has %+v, %v", name, q, err)
		}
	}
	return nil
}

// gone removes volumes, and checks that their projects are free.
func (n *node) gone(names ...string) error {
	for _, name := range names {
		r, err := record(n, name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := n.RemoveProvisioned(name, false, ""); err != nil {
			return err
		}
		if _, err := os.Lstat(n.at(name)); !os.IsNotExist(err) {
			return fmt.Errorf("%s is there still: %w", name, err)
		}
		if err := n.free(r.ID); err != nil {
			return err
		}
	}
	return nil
}

func record(n *node, name string) (volume.Record, error) {
	return volume.MachineProjects().Record(n.at(name))
}

// free checks that a project no longer has a limit.
func (n *node) free(id uint32) error {
	k := volume.MachineProjects()
	if id == 0 || k.Enforced(n.Provisioned) != nil {
		return nil
	}
	if q, err := k.Quota(n.Provisioned, id); err != nil || q.Bytes != 0 || q.Inodes != 0 {
		return fmt.Errorf("project %d has %+v still, %v", id, q, err)
	}
	return nil
}
