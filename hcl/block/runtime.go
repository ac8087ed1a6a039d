package block

import (
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type runtimeBlock struct {
	Source string      `hcl:"source,optional" doc:"bundle: the containerd that comes with clusterctl; distribution: the machine's own packages." default:"\"bundle\""`
	Proxy  *proxyBlock `hcl:"proxy,block" doc:"The proxy through which the bundle's containerd pulls images. A change restarts it."`

	Registries  []registryBlock   `hcl:"registry,block" doc:"Mirrors, TLS settings and credentials of an image registry. A change restarts nothing."`
	Credentials []credentialBlock `hcl:"credential_provider,block" doc:"A program on the nodes that returns registry credentials through the kubelet's credential provider API. A change restarts the kubelets."`
}

type proxyBlock struct {
	HTTP    string   `hcl:"http,optional" doc:"URL of the proxy for connections without TLS."`
	HTTPS   string   `hcl:"https,optional" doc:"URL of the proxy for connections with TLS, such as \"http://proxy.example.com:3128\"." default:"http"`
	NoProxy []string `hcl:"no_proxy,optional" doc:"Hosts, domains (.example.com) and networks that are reached directly, besides this machine and the cluster's own networks and domain."`
}

func decodeRuntime(b *hcl.Block, raw *runtimeBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	c.Runtime.Source = config.RuntimeBundle
	if raw == nil {
		return nil
	}
	c.Runtime.Source = orDefault(raw.Source, config.RuntimeBundle)
	if s := c.Runtime.Source; s != config.RuntimeBundle && s != config.RuntimeDistribution {
		diags = append(diags, newError(nestedRange(b, "runtime", "source"), "Unknown source of the runtime",
			"%q is not known: write %q for the containerd that comes with clusterctl, or %q for the machine's own "+
				"package.", s, config.RuntimeBundle, config.RuntimeDistribution))
	}
	diags = append(diags, decodeRegistries(b, raw, c)...)
	if raw.Proxy == nil {
		return diags
	}
	at := nestedRange(b, "runtime", "proxy")
	if c.Runtime.Source == config.RuntimeDistribution {
		diags = append(diags, newError(at, "Proxy of a runtime that is the machine's own",
			"The unit of a distribution's containerd is its owner's: set the proxy there, in a drop-in."))
	}
	p, more := decodeProxy(at, raw.Proxy)
	c.Runtime.Proxy = p
	return append(diags, more...)
}

func decodeProxy(at *hcl.Range, raw *proxyBlock) (p *config.Proxy, diags hcl.Diagnostics) {
	p = &config.Proxy{HTTP: raw.HTTP, HTTPS: orDefault(raw.HTTPS, raw.HTTP), NoProxy: raw.NoProxy}
	if p.HTTPS == "" {
		diags = append(diags, newError(at, "Proxy without a URL", "Write http, https, or both."))
	}
	for _, text := range []string{p.HTTP, p.HTTPS} {
		if u, err := url.Parse(text); text != "" &&
			(err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) ||
				strings.ContainsAny(text, " \t\r\n\"'\\")) {
			// The URL is not shown, because it may contain a password.
			diags = append(diags, newError(at, "Invalid URL of a proxy",
				"Write it as in \"http://proxy.example.com:3128\": http, https or socks5, a host and a port."))
			break
		}
	}
	for _, host := range p.NoProxy {
		if host == "" || strings.ContainsAny(host, ", \t\r\n\"'\\") {
			diags = append(diags, newError(at, "Invalid no_proxy", "%q is not a host, a domain or a network.", host))
		}
	}
	return p, diags
}

func hasPassword(proxy string) bool {
	u, err := url.Parse(proxy)
	return err == nil && u.User != nil
}
