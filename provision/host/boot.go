package host

import "strings"

// BootID is the kernel's name for its present run.
const BootID = "/proc/sys/kernel/random/boot_id"

// Boot names the present run of a machine: another one after each boot, also of a container, whose kernel goes on.
// Empty when nothing says it.
func Boot(h Files) string {
	id, err := h.ReadFile(BootID)
	if err != nil {
		return ""
	}
	boot := strings.TrimSpace(string(id))
	// Of the first process the 22nd field is when it was started; its name, in brackets, may hold anything.
	if stat, err := h.ReadFile("/proc/1/stat"); err == nil {
		if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(fields) > 19 {
			boot += "-" + fields[19]
		}
	}
	return boot
}
