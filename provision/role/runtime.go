package role

import (
	"cmp"
	"fmt"

	"clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

const (
	containerdConfig = "/etc/containerd/config.toml"
	containerdProxy  = "/etc/containerd/clusterctl-proxy.env"
)

// cniBin returns the directory of the CNI plugins.
func (in Input) cniBin() string {
	if in.Cluster.Runtime.Source == config.RuntimeDistribution {
		return distributionCNI
	}
	return bundleCNI
}

const bundleCNI, distributionCNI = "/opt/cni/bin", "/usr/lib/cni"

// runtime adds containerd and its files, from the bundle or from the distribution.
func runtime(b *builder) {
	b.add(&step.Directory{Path: "/etc/cni/net.d"})
	registries(b)
	if b.Cluster.Runtime.Source == config.RuntimeDistribution {
		for _, name := range []string{"containerd", "runc", "containernetworking-plugins"} {
			b.add(&step.Package{Name: name})
		}
		path := b.file(containerdConfig, containerdV2(b))
		// A unit file of the bundle, which the machine may have had before, would hide the distribution's.
		b.run(&step.NoUnit{Name: "containerd.service", Path: step.UnitDir + "containerd.service", Written: written})
		for _, name := range []string{bundle.Containerd, bundle.Shim, bundle.Runc} {
			b.run(&step.Absent{Path: bin(name), LinkInto: host.Library})
		}
		for _, name := range append([]string{bundle.Podlink}, bundle.CNI...) {
			b.run(&step.Absent{Path: bundleCNI + "/" + name, LinkInto: host.Library})
		}
		b.program(bundle.Podlink, b.cniBin()+"/"+bundle.Podlink)
		b.run(&step.Unit{Name: "containerd.service", Files: []string{path}})
		return
	}
	program := b.program(bundle.Containerd, bin(bundle.Containerd))
	shim := b.program(bundle.Shim, bin(bundle.Shim))
	runc := b.program(bundle.Runc, bin(bundle.Runc))
	for _, name := range append([]string{bundle.Podlink}, bundle.CNI...) {
		b.program(name, b.cniBin()+"/"+name)
	}
	b.run(&step.Absent{Path: distributionCNI + "/" + bundle.Podlink, LinkInto: host.Library})
	path := b.file(containerdConfig, containerdV3(b))
	reads := []string{path, shim, runc}
	options := []string{
		// The shim is found through PATH. A distribution's older shim must not come first.
		"Environment=PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
		"Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", "LimitNPROC=infinity", "TasksMax=infinity",
	}
	proxy := cmp.Or(b.Cluster.Runtime.Proxy, b.Cluster.System.Proxy)
	if proxy != nil { // the proxy's URL may contain a password
		b.secret(containerdProxy, []byte(proxyEnvironment(b.Cluster, b.Machine, proxy)))
	} else {
		b.run(&step.Absent{Path: containerdProxy})
	}
	more, files := b.outside(containerdProxy, proxy)
	reads, options = append(reads, files...), append(options, more...)
	b.unit(service{outside: true,
		name: "containerd", description: "containerd, the container runtime", watchdog: true, hosts: true,
		exec: []string{program, "--config", containerdConfig}, reads: reads, options: options,
	})
}

// containerdV3 returns the configuration of containerd 2.
func containerdV3(b *builder) string {
	return lines(
		"# written by clusterctl",
		"version = 3",
		// If CRI does not start, containerd exits and is restarted. Otherwise it would run forever without being
		// useful.
		`required_plugins = ["io.containerd.grpc.v1.cri"]`,
		`disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]`,
		"",
		"[plugins.'io.containerd.cri.v1.images'.pinned_images]",
		fmt.Sprintf("sandbox = %q", bundle.PauseReference),
		"",
		"# The default names two folders, which the service that pulls images takes for one path.",
		"[plugins.'io.containerd.cri.v1.images'.registry]",
		fmt.Sprintf("config_path = %q", registryDir),
		"",
		"[plugins.'io.containerd.cri.v1.runtime']",
		fmt.Sprintf("restrict_oom_score_adj = %t", !b.Facts.OOMAdjust),
		"# The default of one second costs more than all else on a node at rest.",
		`stats_collect_period = "10s"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.cni]",
		fmt.Sprintf("bin_dirs = [%q]", b.cniBin()),
		`conf_dir = "/etc/cni/net.d"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]",
		`runtime_type = "io.containerd.runc.v2"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]",
		"SystemdCgroup = false",
	)
}

// containerdV2 returns the configuration of containerd 1, which distributions have.
func containerdV2(b *builder) string {
	return lines(
		"# written by clusterctl",
		"version = 2",
		`required_plugins = ["io.containerd.grpc.v1.cri"]`,
		"",
		`[plugins."io.containerd.grpc.v1.cri"]`,
		fmt.Sprintf("sandbox_image = %q", bundle.PauseReference),
		fmt.Sprintf("restrict_oom_score_adj = %t", !b.Facts.OOMAdjust),
		"",
		`[plugins."io.containerd.grpc.v1.cri".cni]`,
		fmt.Sprintf("bin_dir = %q", b.cniBin()),
		`conf_dir = "/etc/cni/net.d"`,
		"",
		`[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]`,
		`runtime_type = "io.containerd.runc.v2"`,
		"",
		`[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]`,
		"SystemdCgroup = false",
		"",
		`[plugins."io.containerd.grpc.v1.cri".registry]`,
		fmt.Sprintf("config_path = %q", registryDir),
	)
}

// images adds the images that do not come from a registry.
func images(b *builder) {
	pause, err := b.Files.File(bundle.PauseReference)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.run(&step.Image{Reference: bundle.PauseReference, Digest: pause.Digest, Size: pause.Size})
	for _, i := range b.Cluster.Images {
		f, err := b.Files.File(i.Reference)
		if err != nil && b.err == nil {
			b.err = err
		}
		b.run(&step.Image{Reference: i.Reference, Digest: f.Digest, Size: f.Size})
	}
}
