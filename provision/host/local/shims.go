package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A shim keeps a pod's containers running while its containerd is not there, also when that never comes back: one
// that was removed, or that could not start for want of room on its disk.

// process is one of the machine's.
type process struct{ pid, parent int }

// shims returns the shims of the containerd behind a socket, and everything that runs below them, the youngest first.
func shims(socket string) (shims, below []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		p, ok := parseStat(string(text))
		if !ok {
			continue
		}
		all = append(all, p)
		args, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && isShim(args, socket) {
			shims = append(shims, p.pid)
		}
	}
	tree := slices.Clone(shims)
	for i := 0; i < len(tree); i++ {
		for _, p := range all {
			if p.parent == tree[i] && !slices.Contains(tree, p.pid) {
				tree, below = append(tree, p.pid), append(below, p.pid)
			}
		}
	}
	slices.Reverse(below)
	return shims, below, nil
}

// parseStat reads /proc/PID/stat; a process that has ended, and waits to be asked for by its parent, is none any more.
func parseStat(text string) (process, bool) {
	head, rest, ok := strings.Cut(text, " (")
	end := strings.LastIndex(rest, ") ") // the name between may have anything
	if !ok || end < 0 {
		return process{}, false
	}
	fields := strings.Fields(rest[end+2:])
	if len(fields) < 2 || fields[0] == "Z" {
		return process{}, false
	}
	pid, err1 := strconv.Atoi(head)
	parent, err2 := strconv.Atoi(fields[1])
	return process{pid, parent}, err1 == nil && err2 == nil
}

// isShim reads /proc/PID/cmdline.
func isShim(cmdline []byte, socket string) bool {
	args := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
	at := slices.Index(args, "-address")
	return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && at > 0 && at+1 < len(args) &&
		args[at+1] == socket &&
		slices.Contains(args, namespace)
}

// kill ends processes at once. One that has ended meanwhile is no error.
func kill(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return nil
}
