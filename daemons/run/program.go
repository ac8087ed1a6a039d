package run

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram lets go of the pages of the program itself that this process has looked at: most of them were
// needed for the start alone, and count as its memory for ever. They stay in the system's cache as long as there is
// room, from where those that are needed again come back, sixteen at a time, at the cost of a fault.
func releaseProgram() {
	for _, m := range program() {
		// An error means that they stay.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// mapping is a part of this process's address space.
type mapping struct{ start, end uintptr }

// program returns where the program's file is mapped and nothing was ever written: dropping that loses nothing.
func program() []mapping {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil // not a system that has this
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer file.Close()
	return clean(bufio.NewScanner(file), path)
}

// clean reads of a process's mappings those that show the file as it is.
func clean(lines *bufio.Scanner, path string) (found []mapping) {
	candidate := false
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		name, isField := strings.CutSuffix(fields[0], ":")
		switch {
		case !isField: // START-END PERMISSIONS OFFSET DEVICE INODE PATH
			candidate = false
			m, ok := parseRange(fields[0])
			if ok && len(fields) >= 6 && strings.Join(fields[5:], " ") == path && len(fields[1]) == 4 &&
				fields[1][0] == 'r' &&
				fields[1][1] == '-' {
				candidate = true
				found = append(found, m)
			}
		case candidate && name == "Anonymous" && fields[1] != "0":
			// Somebody wrote there before it was made read-only: a copy is all that there is.
			candidate = false
			found = found[:len(found)-1]
		}
	}
	return found
}

func parseRange(text string) (mapping, bool) {
	from, to, ok := strings.Cut(text, "-")
	start, err := strconv.ParseUint(from, 16, strconv.IntSize)
	end, err2 := strconv.ParseUint(to, 16, strconv.IntSize)
	return mapping{uintptr(start), uintptr(end)}, ok && err == nil && err2 == nil && start < end
}
