package volume

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
)

// Projects bounds directories by project quotas: each has a project of its own, and all that is in it belongs to that.
// Which one is written on the directory itself, where only the kubelet can change it: what project its files say that
// they are of, whoever owns them may change.
type Projects struct {
	Kernel ProjectKernel // nil means the machine's own

	choosing sync.Mutex // two directories never get the same project
}

// ProjectKernel is what of the kernel projects need. Each call is one change, which is done or not.
type ProjectKernel interface {
	// Enforced returns nil where the file system of a directory holds projects to their limits, and otherwise why it
	// does not.
	Enforced(dir string) error
	// Record returns what is written on a directory, the zero Record where nothing is.
	Record(dir string) (Record, error)
	SetRecord(dir string, r Record) error
	// Project returns the project that a directory is of, 0 when what is made in it does not belong to it.
	Project(dir string) (uint32, error)
	// SetProject has a directory and all that is in it and will be made in it belong to a project.
	SetProject(dir string, id uint32) error
	// Quota and SetLimit are of a project of the file system that a directory is on. A limit of 0 is none.
	Quota(dir string, id uint32) (Quota, error)
	SetLimit(dir string, id uint32, bytes, inodes uint64) error
}

// Record is what a directory has written on it.
type Record struct {
	ID       uint32 // its project, 0 for none
	Complete bool   // all that is in it belongs to the project
}

// Quota is what a project may use and uses, in bytes and inodes.
type Quota struct{ Bytes, Inodes, UsedBytes, UsedInodes uint64 }

// ErrNoQuota says that a file system does not bound directories.
var ErrNoQuota = errors.New("no project quotas")

// The ids that are given out. Those below are left to whoever else uses projects on the file system.
const (
	firstProject = 1 << 20
	projects     = 1 << 30
	mostTries    = 4096
)

func (p *Projects) kernel() ProjectKernel {
	if p.Kernel != nil {
		return p.Kernel
	}
	return MachineProjects()
}

// Bound has a directory hold bytes at most. It may be repeated, after a crash at any point, and for another size. What
// the directory holds already stays, whatever its size is. It returns ErrNoQuota where the file system bounds nothing.
func (p *Projects) Bound(dir string, bytes int64) error {
	k := p.kernel()
	if err := k.Enforced(dir); err != nil {
		return err
	}
	r, err := p.recorded(k, dir)
	if err != nil {
		return err
	}
	// The limit comes first: nothing is written into the project without one.
	if err := k.SetLimit(dir, r.ID, uint64(max(bytes, 1)), inodesOf(bytes)); err != nil {
		return fmt.Errorf("set the limit of project %d, which is %s: %w", r.ID, dir, err)
	}
	is, err := k.Project(dir)
	if err != nil {
		return fmt.Errorf("read which project %s is of: %w", dir, err)
	}
	if r.Complete && is == r.ID {
		return nil
	}
	if err := k.SetProject(dir, r.ID); err != nil {
		return fmt.Errorf("make %s project %d: %w", dir, r.ID, err)
	}
	r.Complete = true
	if err := k.SetRecord(dir, r); err != nil {
		return fmt.Errorf("note that %s is project %d: %w", dir, r.ID, err)
	}
	return nil
}

// inodesOf is how many files a directory of a size may have: as many as could each have a block of their own.
func inodesOf(bytes int64) uint64 { return uint64(max(bytes/4096, 1024)) }

// recorded returns what is written on a directory; where that is nothing, or what another directory has as well, since
// somebody has copied it, a project that is free.
func (p *Projects) recorded(k ProjectKernel, dir string) (Record, error) {
	p.choosing.Lock()
	defer p.choosing.Unlock()
	r, err := k.Record(dir)
	if err != nil {
		return r, fmt.Errorf("read which project %s is: %w", dir, err)
	}
	others, err := beside(k, dir)
	if err != nil {
		return r, err
	}
	if r.ID != 0 && !others[r.ID] {
		return r, nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(filepath.Base(dir)))
	for i := range uint32(mostTries) {
		id := firstProject + (h.Sum32()+i)%projects
		if others[id] {
			continue
		}
		q, err := k.Quota(dir, id)
		if err != nil {
			return r, fmt.Errorf("look whether project %d is free: %w", id, err)
		}
		if q != (Quota{}) {
			continue // somebody else's
		}
		r = Record{ID: id}
		if err := k.SetRecord(dir, r); err != nil {
			return r, fmt.Errorf("note that %s is project %d: %w", dir, id, err)
		}
		return r, nil
	}
	return r, fmt.Errorf("find a project for %s: %d in a row are in use", dir, mostTries)
}

// beside returns the projects of the directories beside one.
func beside(k ProjectKernel, dir string) (map[uint32]bool, error) {
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	ids := map[uint32]bool{}
	for _, e := range entries {
		other := filepath.Join(filepath.Dir(dir), e.Name())
		if other == dir || !e.IsDir() {
			continue
		}
		r, err := k.Record(other)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read which project %s is: %w", other, err)
		}
		ids[r.ID] = true
	}
	delete(ids, 0)
	return ids, nil
}

// Free gives back the project of a directory that is empty, before it goes.
func (p *Projects) Free(dir string) error {
	k := p.kernel()
	p.choosing.Lock()
	defer p.choosing.Unlock()
	r, err := k.Record(dir)
	if err != nil || r.ID == 0 {
		return err
	}
	others, err := beside(k, dir)
	if err != nil || others[r.ID] {
		return err // a copy's, too
	}
	if err := k.SetLimit(dir, r.ID, 0, 0); err != nil && !errors.Is(err, ErrNoQuota) {
		return fmt.Errorf("free project %d, which is %s: %w", r.ID, dir, err)
	}
	return nil
}

// Quota returns what a directory may hold and holds. It returns ErrNoQuota for one that is not bounded.
func (p *Projects) Quota(dir string) (Quota, error) {
	k := p.kernel()
	if err := k.Enforced(dir); err != nil {
		return Quota{}, err
	}
	r, err := k.Record(dir)
	if err != nil {
		return Quota{}, err
	}
	if !r.Complete {
		return Quota{}, fmt.Errorf("%w: %s is no project", ErrNoQuota, dir)
	}
	return k.Quota(dir, r.ID)
}
