package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clusterctl/daemons/config"
)

// checkSettings rejects a configuration that this kubelet would not apply. Failing at the start is better than silently
// ignoring a setting.
func checkSettings(f *config.KubeletFile) error {
	if err := config.Check(f); err != nil {
		return fmt.Errorf("the kubelet's configuration: %w", err)
	}
	return nil
}

// kernelDefaults are the kernel settings that upstream's kubelet requires, by file below /proc/sys.
var kernelDefaults = []struct{ name, want string }{
	{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"}, {"kernel/panic", "10"}, {"kernel/panic_on_oops", "1"},
	{"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
}

// checkKernel returns an error for each kernel setting that differs from kernelDefaults. It is called with
// protectKernelDefaults. This kubelet never changes the settings. sys is /proc/sys.
func checkKernel(sys string) error {
	var found []error
	for _, d := range kernelDefaults {
		data, err := os.ReadFile(filepath.Join(sys, d.name))
		if err != nil {
			found = append(found, fmt.Errorf("protectKernelDefaults: read the kernel's %s: %w", d.name, err))
			continue
		}
		if current := strings.TrimSpace(string(data)); current != d.want {
			found = append(found, fmt.Errorf(
				"protectKernelDefaults: invalid kernel flag: %s, expected value: %s, actual value: %s", d.name, d.want,
				current))
		}
	}
	return errors.Join(found...)
}
