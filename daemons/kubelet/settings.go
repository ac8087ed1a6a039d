package kubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"clusterctl/daemons/config"
)

// checkSettings refuses a configuration that this kubelet would not carry out: an owner who believes in a setting that does nothing
// is worse off than one whose kubelet says why it does not start.
func checkSettings(f config.KubeletFile) error {
	var refused []error
	refuse := func(is bool, format string, args ...any) {
		if is {
			refused = append(refused, fmt.Errorf("the kubelet's configuration: "+format, args...))
		}
	}
	refuse(f.APIVersion != "kubelet.config.k8s.io/v1beta1" || f.Kind != "KubeletConfiguration",
		"it is of apiVersion %q and kind %q; only kubelet.config.k8s.io/v1beta1 KubeletConfiguration is supported", f.APIVersion, f.Kind)
	refuse(f.ServerTLSBootstrap && f.TLSCertFile+f.TLSPrivateKeyFile != "", "serverTLSBootstrap asks the cluster for the serving certificate that tlsCertFile names: leave one of them out")
	refuse(f.PodCIDR != "", "podCIDR is not supported: the controller manager gives nodes their networks")
	refuse(f.ShutdownGracePeriod.Duration != 0, "shutdownGracePeriod is not supported: drain the node before its machine is shut down")
	refuse(f.ReadOnlyPort != 0, "readOnlyPort is not supported: everything is served at port, to who may ask")
	refuse(f.CgroupDriver != "" && f.CgroupDriver != "cgroupfs" && f.CgroupDriver != "systemd", "cgroupDriver %q is neither cgroupfs nor systemd", f.CgroupDriver)
	switch f.Authorization.Mode {
	case "AlwaysAllow", "Webhook", "":
	default:
		refuse(true, "authorization.mode %q is neither Webhook nor AlwaysAllow", f.Authorization.Mode)
	}
	return errors.Join(refused...)
}

// kernelDefaults are what upstream's kubelet wants of the kernel, by the files below /proc/sys.
var kernelDefaults = []struct{ name, want string }{
	{"vm/overcommit_memory", "1"}, {"vm/panic_on_oom", "0"}, {"kernel/panic", "10"}, {"kernel/panic_on_oops", "1"},
	{"kernel/keys/root_maxkeys", "1000000"}, {"kernel/keys/root_maxbytes", "25000000"},
}

// checkKernel returns how the kernel differs from the defaults that a kubelet with protectKernelDefaults insists on. This kubelet never
// changes them by itself. sys is /proc/sys.
func checkKernel(sys string) error {
	var found []error
	for _, d := range kernelDefaults {
		data, err := os.ReadFile(filepath.Join(sys, d.name))
		if err != nil {
			found = append(found, fmt.Errorf("protectKernelDefaults: read the kernel's %s: %w", d.name, err))
			continue
		}
		if have := strings.TrimSpace(string(data)); have != d.want {
			found = append(found, fmt.Errorf("protectKernelDefaults: invalid kernel flag: %s, expected value: %s, actual value: %s", d.name, d.want, have))
		}
	}
	return errors.Join(found...)
}
