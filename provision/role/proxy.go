package role

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

const (
	// proxyFile is the environment file with the proxy of the system block, for daemons that connect to hosts outside
	// the cluster.
	proxyFile = host.ProxyFile
	// aptProxy is the configuration file that sets the same proxy for apt.
	aptProxy = "/etc/apt/apt.conf.d/90clusterctl-proxy"
)

// clusterOnlyOptions returns the options of a unit that connects only to the cluster. systemd's DefaultEnvironment may
// set a proxy for all services. Such a proxy usually cannot reach the cluster's machines, services and pods, and an
// etcd member that used it could not join.
func clusterOnlyOptions() []string {
	return []string{"UnsetEnvironment=" + strings.Join(host.ProxyVariables, " ")}
}

// proxyOptions returns the options of a unit that also connects to hosts outside the cluster, and the files that they
// name. The unit uses the declared proxy, which is in file. Without one it uses the proxy that systemd sets for all
// services, with the cluster's own networks added to NO_PROXY.
func (b *builder) proxyOptions(file string, proxy *config.Proxy) (options, reads []string) {
	if proxy != nil {
		return []string{"EnvironmentFile=" + file, "UnsetEnvironment=ALL_PROXY all_proxy"}, []string{file}
	}
	found := b.Facts.Proxies
	if len(found) == 0 {
		return nil, nil
	}
	direct := noProxyEntries(b.Cluster, b.Machine)
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		for one := range strings.SplitSeq(found[name], ",") {
			if one = strings.TrimSpace(one); noProxyPattern.MatchString(one) && !slices.Contains(direct, one) {
				direct = append(direct, one)
			}
		}
	}
	value := strings.Join(direct, ",")
	return []string{`Environment="NO_PROXY=` + value + `" "no_proxy=` + value + `"`}, nil
}

// noProxyPattern matches a valid entry of NO_PROXY: a host, a domain or a network.
var noProxyPattern = regexp.MustCompile(`^[A-Za-z0-9.:*/_\[\]-]+$`)

// noProxyEntries returns the entries that NO_PROXY always has. This machine is the only machine in the list, because a
// list of all machines would restart daemons everywhere when a machine is added. Connections between daemons never use
// a proxy.
func noProxyEntries(c *config.Cluster, m config.Machine) []string {
	direct := []string{"localhost", "127.0.0.0/8", "::1", ".svc", "." + c.Domain, m.IP.String()}
	if m.SecondIP.IsValid() {
		direct = append(direct, m.SecondIP.String())
	}
	for _, network := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
		direct = append(direct, network.String())
	}
	return direct
}

// proxyEnvironment returns an environment file that sets a proxy. It sets each variable in upper and in lower case,
// because programs differ in which they read.
func proxyEnvironment(c *config.Cluster, m config.Machine, p *config.Proxy) string {
	text := []string{"# written by clusterctl"}
	for _, v := range proxyVariables(c, m, p) {
		text = append(text, v.Name+"="+v.Value)
	}
	return joinLines(text...)
}

func proxyVariables(c *config.Cluster, m config.Machine, p *config.Proxy) (list []corev1.EnvVar) {
	direct := strings.Join(append(noProxyEntries(c, m), p.NoProxy...), ",")
	for _, v := range []corev1.EnvVar{{Name: "HTTP_PROXY", Value: p.HTTP}, {Name: "HTTPS_PROXY", Value: p.HTTPS},
		{Name: "NO_PROXY", Value: direct}} {
		list = append(list, v, corev1.EnvVar{Name: strings.ToLower(v.Name), Value: v.Value})
	}
	return list
}

// addPackageProxy adds the step that writes or removes apt's proxy. It runs before any package is installed.
func addPackageProxy(b *builder) {
	p := b.Cluster.System.Proxy
	switch {
	case p == nil:
		b.add(&step.Absent{Path: aptProxy, NoCopy: true})
	case b.Facts.IsDebian():
		b.addSecretFile(aptProxy, []byte(aptConfiguration(p)))
	}
}

// addSystemProxy adds the steps that write or remove the proxy of the system block.
func addSystemProxy(b *builder) {
	p := b.Cluster.System.Proxy
	if p == nil {
		b.add(&step.Absent{Path: proxyFile, NoCopy: true})
		return
	}
	b.addSecretFile(proxyFile, []byte(proxyEnvironment(b.Cluster, b.Machine, p)))
}

// aptConfiguration returns the proxy configuration for apt. Exceptions that are not host names are left out, because
// apt does not support them.
func aptConfiguration(p *config.Proxy) string {
	text := []string{"// written by clusterctl"}
	for _, of := range []struct{ scheme, url string }{{"http", p.HTTP}, {"https", p.HTTPS}} {
		if of.url == "" {
			continue
		}
		proxy := strings.Replace(of.url, "socks5://", "socks5h://", 1)
		text = append(text, "Acquire::"+of.scheme+`::Proxy "`+proxy+`";`)
		for _, name := range p.NoProxy {
			if u, err := url.Parse("http://" + name); err == nil && u.Host == name && !strings.HasPrefix(name, ".") &&
				!strings.Contains(name, "*") {
				text = append(text, "Acquire::"+of.scheme+"::Proxy::"+u.Hostname()+` "DIRECT";`)
			}
		}
	}
	return joinLines(text...)
}
