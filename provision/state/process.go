package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// process identifies a process among all present and former ones, also on other computers.
type process struct {
	Boot  string `json:"boot,omitempty"`  // the computer's boot ID
	Space string `json:"space,omitempty"` // the PID namespace
	PID   int    `json:"pid,omitempty"`
	Start string `json:"start,omitempty"` // start time, since PIDs are reused
}

// thisProcess returns the zero value if the system does not provide the data.
func thisProcess() process {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return process{}
	}
	start, err := processStart(os.Getpid())
	if err != nil {
		return process{}
	}
	return process{Boot: strings.TrimSpace(string(boot)), Space: space, PID: os.Getpid(), Start: start}
}

// isDead reports whether the process has certainly ended: it ran on this computer in the current boot, and no longer
// does. It returns false for processes of other computers.
func (p process) isDead() bool {
	own := thisProcess()
	if p.PID == 0 || own.PID == 0 || p.Boot != own.Boot || p.Space != own.Space {
		return false
	}
	start, err := processStart(p.PID)
	return errors.Is(err, fs.ErrNotExist) || err == nil && start != p.Start
}

// processStart returns when a process began, in ticks since boot. Zombies count as not existing.
func processStart(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The program's name, in parentheses, may contain anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const state, start = 0, 19
	if len(fields) <= start {
		return "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if s := string(fields[state]); s == "Z" || s == "X" {
		return "", fs.ErrNotExist
	}
	return string(fields[start]), nil
}
