package local

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
)

// missingFeatures returns the kernel features that nodes need and that the kernel has neither built in nor as a module.
// Features that cannot be checked count as present.
func missingFeatures() (list []string) {
	filesystems, err := readAll("/proc/filesystems")
	if err == nil && !strings.Contains(filesystems, "\toverlay\n") && isModuleAbsent("overlay") {
		list = append(list, "overlay")
	}
	if !hasNFTables() && isModuleAbsent("nf_tables") {
		list = append(list, "nf_tables")
	}
	if _, err := os.Stat("/sys/module/veth"); err != nil && isModuleAbsent("veth") {
		list = append(list, "veth")
	}
	return list
}

// hasNFTables reports whether the kernel answers nftables requests.
func hasNFTables() bool {
	conn, err := nftables.New()
	if err != nil {
		return false
	}
	_, err = conn.ListTables()
	return err == nil
}

// isModuleAbsent reports whether the module lists of the running kernel do not contain a module. It returns false if
// the lists cannot be read.
func isModuleAbsent(name string) bool {
	release, err := readAll("/proc/sys/kernel/osrelease")
	if err != nil {
		return false
	}
	return isAbsentFromDir(filepath.Join("/lib/modules", strings.TrimSpace(release)), name)
}

func isAbsentFromDir(dir, name string) bool {
	isKnown := false
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		text, err := readAll(filepath.Join(dir, list))
		if err != nil {
			continue
		}
		isKnown = true
		for line := range strings.Lines(text) {
			module, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			base, _, _ := strings.Cut(filepath.Base(module), ".ko")
			if strings.ReplaceAll(base, "-", "_") == name {
				return false
			}
		}
	}
	return isKnown
}
