package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// process tells one process from all others that there are or were, also on other computers.
type process struct {
	Boot  string `json:"boot,omitempty"`  // the computer since it was last started
	Space string `json:"space,omitempty"` // what process numbers are counted in
	PID   int    `json:"pid,omitempty"`
	Start string `json:"start,omitempty"` // when it began: numbers are used again
}

// thisProcess returns the zero value where the system does not tell.
func thisProcess() process {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return process{}
	}
	start, err := started(os.Getpid())
	if err != nil {
		return process{}
	}
	return process{Boot: strings.TrimSpace(string(boot)), Space: space, PID: os.Getpid(), Start: start}
}

// dead reports whether the process is known to have ended: it ran on this computer since this was last
// started, and does not any more. Of another computer's nothing is known.
func (p process) dead() bool {
	own := thisProcess()
	if p.PID == 0 || own.PID == 0 || p.Boot != own.Boot || p.Space != own.Space {
		return false
	}
	start, err := started(p.PID)
	return errors.Is(err, fs.ErrNotExist) || err == nil && start != p.Start
}

// started returns when a process began, in ticks since the boot. One that has ended and is only
// waiting to be noticed does not exist any more.
func started(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The program's name, in brackets, may have anything in it.
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
