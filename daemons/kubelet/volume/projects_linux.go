package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// projectKernel is the machine's ProjectKernel. It uses one interface for ext4 and xfs: quotactl_fd(2) with the
// commands and structures of <linux/quota.h> and <linux/dqblk_xfs.h>, and the ioctls of <linux/fs.h>.
type projectKernel struct{}

// MachineProjects returns the ProjectKernel of the machine.
func MachineProjects() ProjectKernel { return projectKernel{} }

const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inheritFlag   = 0x200      // FS_XFLAG_PROJINHERIT

	projectType  = 2 // PRJQUOTA
	getQuota     = 0x800007<<8 | projectType
	setQuota     = 0x800008<<8 | projectType
	getState     = 0x5808<<8 | projectType // Q_XGETQSTATV
	enforcedFlag = 1 << 5                  // FS_QUOTA_PDQ_ENFD
	limitFlags   = 1 | 4                   // QIF_BLIMITS | QIF_ILIMITS
	limitUnit    = 1024                    // unit of limits on bytes

	// recordName is the attribute of the record. Containers cannot change it, because trusted attributes need
	// CAP_SYS_ADMIN on the machine.
	recordName    = "trusted.clusterctl.project"
	markingSuffix = " marking" // suffix of the ID until all contents of the directory belong to the project
)

// attributes is struct fsxattr.
type attributes struct {
	Flags, ExtentSize, Extents, Project, CowExtentSize uint32
	_                                                  [8]byte
}

// projectQuota is struct if_dqblk.
type projectQuota struct {
	BlockHard, BlockSoft, Space, InodeHard, InodeSoft, Inodes, BlockTime, InodeTime uint64
	Valid, _                                                                        uint32
}

// withOpenDir calls f with an open descriptor of a directory.
func withOpenDir(dir string, f func(fd int) error) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	return f(fd)
}

func quotactl(dir string, command uint32, id uint32, what unsafe.Pointer) error {
	return withOpenDir(dir, func(fd int) error {
		if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), uintptr(command), uintptr(id), uintptr(what),
			0, 0); errno != 0 {
			return errno
		}
		return nil
	})
}

func attributesOf(fd int, request uintptr, a *attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return errno
	}
	return nil
}

// CheckEnforced implements ProjectKernel.
func (projectKernel) CheckEnforced(dir string) error {
	state := [160]byte{1} // struct fs_quota_statv, version 1
	switch err := quotactl(dir, getState, 0, unsafe.Pointer(&state)); {
	case errors.Is(err, unix.ENOENT):
		return err
	case err != nil:
		// The error depends on the file system. Kernels before 5.14 do not have the call.
		return fmt.Errorf("%w: the file system of %s has none (%w): it can be xfs or ext4 with the feature project, "+
			"mounted with the option prjquota", ErrNoQuota, dir, err)
	case binary.NativeEndian.Uint16(state[2:])&enforcedFlag == 0:
		return fmt.Errorf("%w: the file system of %s is not mounted with the option prjquota", ErrNoQuota, dir)
	}
	return nil
}

// Record implements ProjectKernel.
func (projectKernel) Record(dir string) (r Record, err error) {
	var text [64]byte
	n, err := unix.Lgetxattr(dir, recordName, text[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return r, nil
	case err != nil:
		return r, err
	}
	id, incomplete := strings.CutSuffix(string(text[:n]), markingSuffix)
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return r, fmt.Errorf("attribute %s of %s: %w", recordName, dir, err)
	}
	return Record{ID: uint32(number), Complete: !incomplete}, nil
}

// SetRecord implements ProjectKernel.
func (projectKernel) SetRecord(dir string, r Record) error {
	text := strconv.FormatUint(uint64(r.ID), 10)
	if !r.Complete {
		text += markingSuffix
	}
	return unix.Lsetxattr(dir, recordName, []byte(text), 0)
}

// Project implements ProjectKernel.
func (projectKernel) Project(dir string) (id uint32, err error) {
	err = withOpenDir(dir, func(fd int) error {
		var a attributes
		if err := attributesOf(fd, getAttributes, &a); err != nil {
			return err
		}
		if a.Flags&inheritFlag != 0 {
			id = a.Project
		}
		return nil
	})
	return id, err
}

// SetProject implements ProjectKernel. It changes a directory before its contents, so that files created concurrently
// inherit the project.
func (projectKernel) SetProject(dir string, id uint32) error {
	return withOpenDir(dir, func(fd int) error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		give := func(fd int, st *unix.Stat_t) error {
			kind := st.Mode & unix.S_IFMT
			if kind != unix.S_IFDIR && kind != unix.S_IFREG {
				return nil // it has no blocks of its own
			}
			file, err := unix.Open(fdPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(file)
			var a attributes
			if err := attributesOf(file, getAttributes, &a); err != nil {
				return err
			}
			want := a
			want.Project = id
			if kind == unix.S_IFDIR {
				want.Flags |= inheritFlag
			}
			if want == a {
				return nil
			}
			return attributesOf(file, setAttributes, &want)
		}
		if err := give(fd, &st); err != nil {
			return err
		}
		return walk(fd, 0, give)
	})
}

// Quota implements ProjectKernel.
func (projectKernel) Quota(dir string, id uint32) (Quota, error) {
	var q projectQuota
	err := quotactl(dir, getQuota, id, unsafe.Pointer(&q))
	switch {
	case errors.Is(err, unix.ENOENT): // xfs has no record of the project
		return Quota{}, nil
	case errors.Is(err, unix.ESRCH):
		return Quota{}, fmt.Errorf("%w: %w", ErrNoQuota, err)
	case err != nil:
		return Quota{}, err
	}
	return Quota{Bytes: q.BlockHard * limitUnit, Inodes: q.InodeHard, UsedBytes: q.Space, UsedInodes: q.Inodes}, nil
}

// SetLimit implements ProjectKernel.
func (projectKernel) SetLimit(dir string, id uint32, bytes, inodes uint64) error {
	q := projectQuota{BlockHard: (bytes + limitUnit - 1) / limitUnit, InodeHard: inodes, Valid: limitFlags}
	err := quotactl(dir, setQuota, id, unsafe.Pointer(&q))
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: %w", ErrNoQuota, err)
	}
	return err
}
