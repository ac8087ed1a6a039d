package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clusterctl/daemons/config"
)

// checkSettings refuses a configuration that this kubelet would not carry out: an owner who believes in a setting that
// does nothing is worse off than one whose kubelet says why it does not start.
func checkSettings(f *config.KubeletFile) error {
	if err := config.Check(f); err != nil {
		return fmt.Errorf("the kubelet's configuration: %w", err)
	}
	return nil
}

// kernelDefaults are what upstream's kubelet wants of the kernel, by the files below /proc/sys.
var kernelDefaults = []struct{ name, want string }{
	{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"}, {"kernel/panic", "10"}, {"kernel/panic_on_oops", "1"},
	{"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
}

// checkKernel returns how the kernel differs from the defaults that a kubelet with protectKernelDefaults insists on.
// This kubelet never changes them by itself. sys is /proc/sys.
func checkKernel(sys string) error {
	var found []error
	for _, d := range kernelDefaults {
		data, err := os.ReadFile(filepath.Join(sys, d.name))
		if err != nil {
			found = append(found, fmt.Errorf("protectKernelDefaults: read the kernel's %s: %w", d.name, err))
			continue
		}
		if have := strings.TrimSpace(string(data)); have != d.want {
			found = append(
				found,
				fmt.Errorf(
					"protectKernelDefaults: invalid kernel flag: %s, expected value: %s, actual value: %s",
					d.name,
					d.want,
					have,
				),
			)
		}
	}
	return errors.Join(found...)
}
