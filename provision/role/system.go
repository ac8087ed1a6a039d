package role

import (
	"clusterctl/hcl/config"
	"clusterctl/provision/step"
)

// addSystemChanges adds the declared changes of the operating system. A reboot comes before all steps that it would
// interrupt.
func addSystemChanges(b *builder) {
	s := b.Cluster.System
	for _, name := range s.Packages {
		b.add(&step.Package{Name: name})
	}
	if b.IsWindowClosed {
		return
	}
	if s.Upgrade != "" {
		b.add(&step.PackageLists{}, &step.Upgrade{Security: s.Upgrade == config.UpgradeSecurity})
	}
	if s.Reboot {
		b.add(&step.Reboot{})
	}
}
