package host

import "strings"

// BootIDPath is the file with the kernel's random ID of the current boot.
const BootIDPath = "/proc/sys/kernel/random/boot_id"

// CurrentBootID returns an ID of a machine's current boot. It also changes when a container restarts, whose kernel
// continues to run. It returns "" if the ID cannot be read.
func CurrentBootID(h Files) string {
	id, err := h.ReadFile(BootIDPath)
	if err != nil {
		return ""
	}
	boot := strings.TrimSpace(string(id))
	// The 22nd field of /proc/PID/stat is the start time of process 1. The name, in parentheses, may contain anything.
	if stat, err := h.ReadFile("/proc/1/stat"); err == nil {
		if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(fields) > 19 {
			boot += "-" + fields[19]
		}
	}
	return boot
}
