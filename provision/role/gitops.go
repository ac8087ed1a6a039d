package role

import (
	"slices"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/provision/bundle"
	"clusterctl/provision/state"
)

// gitOpsCache is the directory of systemd's CacheDirectory for the GitOps controller, which runs as a dynamic user. It
// contains fetched repositories. systemd links it from gitOpsCacheLink.
const (
	gitOpsCache     = "/var/cache/private/" + bundle.GitOps
	gitOpsCacheLink = "/var/cache/" + bundle.GitOps
)

// receiver is the name of the certificate of the port for webhooks. receiverCert and receiverKey are the names of the
// unit's credentials with it and its key.
const (
	receiver     = gitsource.ReceiverService
	receiverCert = "receiver.crt"
	receiverKey  = "receiver.key"
)

// hasReceiver reports whether the machine receives webhooks over TLS.
func (in Input) hasReceiver() bool { return in.hasGitOps() && in.Cluster.ReceiverPort() != 0 }

// hasGitOps reports whether the machine runs the GitOps controller: while GitSources are declared, and until the
// objects of those that were declared before are deleted.
func (in Input) hasGitOps() bool {
	return in.isControlPlane() && (in.Cluster.HasGitSources() ||
		in.State != nil && slices.ContainsFunc(in.State.Objects, IsGitSource))
}

// IsGitSource reports whether an applied object is a GitSource.
func IsGitSource(o state.Object) bool {
	return o.APIVersion == gitsource.APIVersion && o.Kind == gitsource.Kind
}

// addGitOps adds the GitOps controller. It is active on one machine at a time. It runs as a dynamic user whose only
// rights are to read GitSources and to act as the service accounts that they name.
func addGitOps(b *builder) {
	def := config.DefaultGitOps()
	cfg := def
	b.Cluster.GitOps.Over(&cfg)
	const name = bundle.GitOps
	file := b.kubeconfig("gitops", certs.Replica(name, b.Machine.Name))
	cfg.Kubeconfig, cfg.APIServers = credentialPath(name), b.apiServers()
	proxy, files := b.proxyOptions(proxyFile, b.Cluster.System.Proxy)
	options := append(dynamicUserOptions(file, ""), proxy...)
	if cfg.ReceiverPort != 0 {
		cert, key := b.certificate(receiver, certs.ClusterCA,
			certs.GitOpsReceiver(append(b.Machine.IPs(), b.Machine.Name)))
		options = append(options, "LoadCredential="+receiverCert+":"+cert, "LoadCredential="+receiverKey+":"+key)
		files = append(files, cert)
		cfg.ReceiverCertFile, cfg.ReceiverKeyFile = credentialOf(name, receiverCert), credentialOf(name, receiverKey)
		cfg.NodeName, cfg.NodeIP = b.Machine.Name, b.Machine.IPs()
	}
	b.addUnit(service{
		name: name, description: "GitOps controller", startAfter: "kube-apiserver.service", hasWatchdog: true,
		canStartInParallel: true, health: readyURL(cfg.HealthAddress), needsProxy: true,
		exec:  append([]string{b.addProgram(name, binPath(name))}, config.Args(&cfg, &def)...),
		reads: append(files, file),
		options: append(options, "CacheDirectory="+name, "CacheDirectoryMode=0700", "RuntimeDirectory="+name,
			"RuntimeDirectoryMode=0700", "MemoryMax=1G"),
	})
}
