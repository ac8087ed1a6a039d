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

// cniBinDir returns the directory of the CNI plugins.
func (in Input) cniBinDir() string {
	if in.Cluster.Runtime.Source == config.RuntimeDistribution {
		return distributionCNI
	}
	return bundleCNI
}

const bundleCNI, distributionCNI = "/opt/cni/bin", "/usr/lib/cni"

// addRuntime adds containerd and its files, from the bundle or from the distribution.
func addRuntime(b *builder) {
	b.add(&step.Directory{Path: "/etc/cni/net.d"})
	addRegistries(b)
	if b.Cluster.Runtime.Source == config.RuntimeDistribution {
		for _, name := range []string{"containerd", "runc", "containernetworking-plugins"} {
			b.add(&step.Package{Name: name})
		}
		path := b.addFile(containerdConfig, renderContainerdV2(b))
		// A unit file of the bundle, which the machine may have had before, would hide the distribution's.
		b.addUnitStep(&step.RemoveUnit{Name: "containerd.service", Path: step.UnitDir + "containerd.service",
			Written: fileHeader})
		for _, name := range []string{bundle.Containerd, bundle.Shim, bundle.Runc} {
			b.addUnitStep(&step.Absent{Path: binPath(name), LinkInto: host.LibraryDir})
		}
		for _, name := range append([]string{bundle.Podlink}, bundle.CNI...) {
			b.addUnitStep(&step.Absent{Path: bundleCNI + "/" + name, LinkInto: host.LibraryDir})
		}
		b.addProgram(bundle.Podlink, b.cniBinDir()+"/"+bundle.Podlink)
		b.addUnitStep(&step.Unit{Name: "containerd.service", Files: []string{path}})
		return
	}
	program := b.addProgram(bundle.Containerd, binPath(bundle.Containerd))
	shim := b.addProgram(bundle.Shim, binPath(bundle.Shim))
	runc := b.addProgram(bundle.Runc, binPath(bundle.Runc))
	for _, name := range append([]string{bundle.Podlink}, bundle.CNI...) {
		b.addProgram(name, b.cniBinDir()+"/"+name)
	}
	b.addUnitStep(&step.Absent{Path: distributionCNI + "/" + bundle.Podlink, LinkInto: host.LibraryDir})
	path := b.addFile(containerdConfig, renderContainerdV3(b))
	reads := []string{path, shim, runc}
	options := []string{
		// The shim is found through PATH. A distribution's older shim must not come first.
		"Environment=PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
		"Delegate=yes", "KillMode=process", "OOMScoreAdjust=-999", "LimitNPROC=infinity", "TasksMax=infinity",
	}
	proxy := cmp.Or(b.Cluster.Runtime.Proxy, b.Cluster.System.Proxy)
	if proxy != nil { // the proxy's URL may contain a password
		b.addSecretFile(containerdProxy, []byte(proxyEnvironment(b.Cluster, b.Machine, proxy)))
	} else {
		b.addUnitStep(&step.Absent{Path: containerdProxy})
	}
	more, files := b.proxyOptions(containerdProxy, proxy)
	reads, options = append(reads, files...), append(options, more...)
	b.addUnit(service{needsProxy: true,
		name: "containerd", description: "containerd, the container runtime", hasWatchdog: true, runsContainers: true,
		exec: []string{program, "--config", containerdConfig}, reads: reads, options: options,
	})
}

// renderContainerdV3 returns the configuration of containerd 2.
func renderContainerdV3(b *builder) string {
	return joinLines(
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
		fmt.Sprintf("restrict_oom_score_adj = %t", !b.Facts.CanAdjustOOM),
		"# The default of one second costs more than all else on a node at rest.",
		`stats_collect_period = "10s"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.cni]",
		fmt.Sprintf("bin_dirs = [%q]", b.cniBinDir()),
		`conf_dir = "/etc/cni/net.d"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]",
		`runtime_type = "io.containerd.runc.v2"`,
		"",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]",
		"SystemdCgroup = false",
	)
}

// renderContainerdV2 returns the configuration of containerd 1, which distributions have.
func renderContainerdV2(b *builder) string {
	return joinLines("# written by clusterctl", "version = 2", `required_plugins = ["io.containerd.grpc.v1.cri"]`, "",
		`[plugins."io.containerd.grpc.v1.cri"]`, fmt.Sprintf("sandbox_image = %q", bundle.PauseReference), fmt.Sprintf(
			"restrict_oom_score_adj = %t", !b.Facts.CanAdjustOOM), "", `[plugins."io.containerd.grpc.v1.cri".cni]`,
		fmt.Sprintf("bin_dir = %q", b.cniBinDir()), `conf_dir = "/etc/cni/net.d"`, "",
		`[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]`, `runtime_type = "io.containerd.runc.v2"`, "",
		`[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]`, "SystemdCgroup = false", "",
		`[plugins."io.containerd.grpc.v1.cri".registry]`, fmt.Sprintf("config_path = %q", registryDir))
}

// addImages adds the images that do not come from a registry.
func addImages(b *builder) {
	pause, err := b.Files.File(bundle.PauseReference)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.addUnitStep(&step.Image{Reference: bundle.PauseReference, Digest: pause.Digest, Size: pause.Size})
	for _, i := range b.Cluster.Images {
		f, err := b.Files.File(i.Reference)
		if err != nil && b.err == nil {
			b.err = err
		}
		b.addUnitStep(&step.Image{Reference: i.Reference, Digest: f.Digest, Size: f.Size})
	}
}
