package volume

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync"
)

// Projects limits the size of directories by project quotas. Each directory has its own project, to which all its
// contents belong. The project ID is recorded on the directory in an attribute that only the kubelet can change. The
// project IDs of the files are not trusted, because their owners can change them.
type Projects struct {
	Kernel ProjectKernel // nil means the machine's own

	mutex sync.Mutex // guards the choice of a free project, so that two directories never get the same one
}

// ProjectKernel is the kernel interface that Projects needs. Each call is one atomic change.
type ProjectKernel interface {
	// CheckEnforced returns nil if the file system of a directory enforces project limits. Otherwise the error states
	// why it does not.
	CheckEnforced(dir string) error
	// Record returns the record on a directory, or the zero Record if there is none.
	Record(dir string) (Record, error)
	SetRecord(dir string, r Record) error
	// Project returns the project of a directory. It returns 0 if new files in the directory do not inherit the
	// project.
	Project(dir string) (uint32, error)
	// SetProject assigns a directory, its contents, and all files that will be created in it, to a project.
	SetProject(dir string, id uint32) error
	// Quota and SetLimit read and change a project on the file system of a directory. A limit of 0 means no limit.
	Quota(dir string, id uint32) (Quota, error)
	SetLimit(dir string, id uint32, bytes, inodes uint64) error
}

// Record is the record on a directory.
type Record struct {
	ID       uint32 // its project; 0 for none
	Complete bool   // all its contents belong to the project
}

// Quota holds the limits and the usage of a project, in bytes and inodes.
type Quota struct{ Bytes, Inodes, UsedBytes, UsedInodes uint64 }

// ErrNoQuota means that a file system does not enforce project quotas.
var ErrNoQuota = errors.New("no project quotas")

// These constants are the range of assigned project IDs and the limit of attempts to find a free one. Lower IDs are
// left to other users of project quotas.
const (
	firstProject = 1 << 20
	projectCount = 1 << 30
	maxTries     = 4096
)

func (p *Projects) kernel() ProjectKernel {
	if p.Kernel != nil {
		return p.Kernel
	}
	return MachineProjects()
}

// Limit limits a directory to the given bytes. It can be repeated, also after a crash at any point or with another
// size. Existing contents stay, even if they exceed the limit. It returns ErrNoQuota if the file system does not
// support quotas.
func (p *Projects) Limit(dir string, bytes int64) error {
	k := p.kernel()
	if err := k.CheckEnforced(dir); err != nil {
		return err
	}
	r, err := p.readRecord(k, dir)
	if err != nil {
		return err
	}
	// Set the limit first, so that nothing is written into a project without a limit.
	if err := k.SetLimit(dir, r.ID, uint64(max(bytes, 1)), inodesOf(bytes)); err != nil {
		return fmt.Errorf("set the limit of project %d, which is %s: %w", r.ID, dir, err)
	}
	current, err := k.Project(dir)
	if err != nil {
		return fmt.Errorf("read which project %s is of: %w", dir, err)
	}
	if r.Complete && current == r.ID {
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

// inodesOf returns the inode limit for a size: enough for each file to have one block.
func inodesOf(bytes int64) uint64 { return uint64(max(bytes/4096, 1024)) }

// readRecord returns the record of a directory. If there is none, or another directory has the same project because it
// was copied, it chooses a free project.
func (p *Projects) readRecord(k ProjectKernel, dir string) (Record, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	r, err := k.Record(dir)
	if err != nil {
		return r, fmt.Errorf("read which project %s is: %w", dir, err)
	}
	others, err := siblingProjects(k, dir)
	if err != nil {
		return r, err
	}
	if r.ID != 0 && !others[r.ID] {
		return r, nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(filepath.Base(dir)))
	for i := range uint32(maxTries) {
		id := firstProject + (h.Sum32()+i)%projectCount
		if others[id] {
			continue
		}
		q, err := k.Quota(dir, id)
		if err != nil {
			return r, fmt.Errorf("check whether project %d is free: %w", id, err)
		}
		if q != (Quota{}) {
			continue // used by another program
		}
		r = Record{ID: id}
		if err := k.SetRecord(dir, r); err != nil {
			return r, fmt.Errorf("note that %s is project %d: %w", dir, id, err)
		}
		return r, nil
	}
	return r, fmt.Errorf("find a project for %s: %d in a row are in use", dir, maxTries)
}

// siblingProjects returns the projects of the sibling directories.
func siblingProjects(k ProjectKernel, dir string) (map[uint32]bool, error) {
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

// Release releases the project of an empty directory, before the directory is removed.
func (p *Projects) Release(dir string) error {
	k := p.kernel()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	r, err := k.Record(dir)
	if err != nil || r.ID == 0 {
		return err
	}
	others, err := siblingProjects(k, dir)
	if err != nil || others[r.ID] {
		return err // a copied directory has the same project
	}
	if err := k.SetLimit(dir, r.ID, 0, 0); err != nil && !errors.Is(err, ErrNoQuota) {
		return fmt.Errorf("free project %d, which is %s: %w", r.ID, dir, err)
	}
	return nil
}

// Quota returns the limits and usage of a directory. It returns ErrNoQuota if the directory is not limited.
func (p *Projects) Quota(dir string) (Quota, error) {
	k := p.kernel()
	if err := k.CheckEnforced(dir); err != nil {
		return Quota{}, err
	}
	r, err := k.Record(dir)
	if err != nil {
		return Quota{}, err
	}
	if !r.Complete {
		return Quota{}, fmt.Errorf("%w: %s is not a project", ErrNoQuota, dir)
	}
	return k.Quota(dir, r.ID)
}
