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
	// proxyFile has the proxy of the cluster block's system, for daemons that reach what is outside of the cluster.
	proxyFile = host.ProxyFile
	// aptProxy has it for apt.
	aptProxy = "/etc/apt/apt.conf.d/90clusterctl-proxy"
)

// insideOnly are options of a unit that speaks with the cluster alone. systemd's DefaultEnvironment may name a proxy
// for all services, which does not lead to the cluster's machines, services and pods: a member of etcd could not join
// by it.
func insideOnly() []string {
	return []string{"UnsetEnvironment=" + strings.Join(host.ProxyVariables, " ")}
}

// outside returns the options of a unit that also reaches what is outside: the proxy that is declared, in a file, or
// the one that systemd gives to all services, with what is reached without it.
func (b *builder) outside(file string, proxy *config.Proxy) (options, reads []string) {
	if proxy != nil {
		return []string{"EnvironmentFile=" + file, "UnsetEnvironment=ALL_PROXY all_proxy"}, []string{file}
	}
	found := b.Facts.Proxies
	if len(found) == 0 {
		return nil, nil
	}
	direct := directly(b.Cluster, b.Machine)
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		for one := range strings.SplitSeq(found[name], ",") {
			if one = strings.TrimSpace(one); exception.MatchString(one) && !slices.Contains(direct, one) {
				direct = append(direct, one)
			}
		}
	}
	value := strings.Join(direct, ",")
	return []string{`Environment="NO_PROXY=` + value + `" "no_proxy=` + value + `"`}, nil
}

// exception is what NO_PROXY may list: hosts, domains and networks.
var exception = regexp.MustCompile(`^[A-Za-z0-9.:*/_\[\]-]+$`)

// directly lists what is reached without a proxy in any case. Of the machines only this one is there: another new one
// would restart daemons on all. The daemons' own connections to machines never take a proxy.
func directly(c *config.Cluster, m config.Machine) []string {
	direct := []string{"localhost", "127.0.0.0/8", "::1", ".svc", "." + c.Domain, m.IP.String()}
	if m.SecondIP.IsValid() {
		direct = append(direct, m.SecondIP.String())
	}
	for _, network := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
		direct = append(direct, network.String())
	}
	return direct
}

// proxyEnvironment is a file of environment variables that name a proxy, as programs read them in either case.
func proxyEnvironment(c *config.Cluster, m config.Machine, p *config.Proxy) string {
	text := []string{"# written by clusterctl"}
	for _, v := range proxyVariables(c, m, p) {
		text = append(text, v.Name+"="+v.Value)
	}
	return lines(text...)
}

func proxyVariables(c *config.Cluster, m config.Machine, p *config.Proxy) (list []corev1.EnvVar) {
	direct := strings.Join(append(directly(c, m), p.NoProxy...), ",")
	for _, v := range []corev1.EnvVar{{Name: "HTTP_PROXY", Value: p.HTTP}, {Name: "HTTPS_PROXY", Value: p.HTTPS},
		{Name: "NO_PROXY", Value: direct}} {
		list = append(list, v, corev1.EnvVar{Name: strings.ToLower(v.Name), Value: v.Value})
	}
	return list
}

// systemProxy lays the proxy that the machine uses for itself.
func systemProxy(b *builder) {
	p := b.Cluster.System.Proxy
	if p == nil {
		b.add(&step.Absent{Path: proxyFile, NoCopy: true}, &step.Absent{Path: aptProxy, NoCopy: true})
		return
	}
	b.secret(proxyFile, []byte(proxyEnvironment(b.Cluster, b.Machine, p)))
	if b.Facts.Debian() {
		b.secret(aptProxy, []byte(aptConfiguration(p)))
	}
}

// aptConfiguration names the proxy for apt, which knows exceptions by host name alone.
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
	return lines(text...)
}
