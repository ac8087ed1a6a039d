package run

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram releases the resident pages of the program file. Most of them were needed only for the start, and
// would count as the process's memory for ever. They stay in the page cache while there is room. A page that is needed
// again causes a fault, which maps sixteen pages.
func releaseProgram() {
	for _, m := range programMappings() {
		// After an error the pages stay.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// mapping is a range of this process's address space.
type mapping struct{ start, end uintptr }

// programMappings returns the mappings of the program file that were never written to. Dropping those loses nothing.
func programMappings() []mapping {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil // the system does not provide it
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer file.Close()
	return unmodifiedMappings(bufio.NewScanner(file), path)
}

// unmodifiedMappings returns the mappings of a file whose pages were not modified.
func unmodifiedMappings(lines *bufio.Scanner, path string) (found []mapping) {
	candidate := false
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		name, isField := strings.CutSuffix(fields[0], ":")
		switch {
		case !isField: // the form is START-END PERMISSIONS OFFSET DEVICE INODE PATH
			candidate = false
			m, ok := parseRange(fields[0])
			if ok && len(fields) >= 6 && strings.Join(fields[5:], " ") == path && len(fields[1]) == 4 &&
				fields[1][0] == 'r' &&
				fields[1][1] == '-' {
				candidate = true
				found = append(found, m)
			}
		case candidate && name == "Anonymous" && fields[1] != "0":
			// The mapping was written to before it was made read-only, and the file does not contain those changes.
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
