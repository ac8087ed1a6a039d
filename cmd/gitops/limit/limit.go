// Package limit bounds the resources of a process that evaluates files of others.
package limit

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// goArena is the size of the address ranges that Go reserves at a time, in bytes.
const goArena = 64 << 20

// Process limits the memory that this process uses from now on, in bytes, and lets it write no files and no core dumps.
func Process(memory uint64) error {
	reserved, err := addressSpace()
	if err != nil {
		return err
	}
	// Linux does not check RLIMIT_DATA when a program writes to addresses that it has reserved before, as Go does with
	// each large block. Therefore, addresses are limited, too.
	for resource, limit := range map[int]uint64{unix.RLIMIT_DATA: memory, unix.RLIMIT_AS: reserved + memory + goArena,
		unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit resource %d of the process: %w", resource, err)
		}
	}
	return nil
}

// addressSpace returns the size of this process's address space in bytes.
func addressSpace() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read the size of the process: %w", err)
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return 0, fmt.Errorf("read the size of the process: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil
}
