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

// A shim keeps a pod's containers running without containerd, even if containerd never returns: because it was removed,
// or because it cannot start for lack of disk space.

// process is a process of the machine.
type process struct{ pid, parent int }

// findShims returns the shims of the containerd at a socket, and all their descendants, youngest first.
func findShims(socket string) (shims, below []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, nil, fmt.Errorf("list processes: %w", err)
	}
	var all []process
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
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

// parseStat parses /proc/PID/stat. It returns false for a zombie.
func parseStat(text string) (process, bool) {
	head, rest, ok := strings.Cut(text, " (")
	end := strings.LastIndex(rest, ") ") // the name in parentheses may contain anything
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

// isShim reports whether the content of /proc/PID/cmdline is that of a shim for this socket.
func isShim(cmdline []byte, socket string) bool {
	args := strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
	at := slices.Index(args, "-address")
	return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && at > 0 && at+1 < len(args) &&
		args[at+1] == socket &&
		slices.Contains(args, criNamespace)
}

// killProcesses kills processes. A process that has already ended is not an error.
func killProcesses(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return nil
}
