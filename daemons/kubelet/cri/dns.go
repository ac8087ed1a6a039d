package cri

import (
	"bufio"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Resolver holds the node's DNS settings from which pods' resolver configurations are made.
type Resolver struct {
	Cluster []string           // addresses of the cluster's DNS servers
	Domain  string             // cluster.local
	Host    *runtime.DNSConfig // the node's own resolver configuration
}

// These constants are the limits of common resolver libraries.
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearchChars = 2048 // including a space between each two
)

// PodConfig returns the resolver configuration of a pod according to its DNS policy, and the entries that were omitted
// because of the limits.
func (r Resolver) PodConfig(p *corev1.Pod) (d *runtime.DNSConfig, omitted []string) {
	host := r.Host
	if host == nil {
		host = &runtime.DNSConfig{}
	}
	d = &runtime.DNSConfig{}
	policy := p.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && p.Spec.HostNetwork || policy == "" {
		policy = corev1.DNSDefault
		if !p.Spec.HostNetwork {
			policy = corev1.DNSClusterFirst
		}
	}
	switch {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSDefault || len(r.Cluster) == 0:
		d.Servers, d.Searches, d.Options = slices.Clone(host.Servers), slices.Clone(host.Searches), slices.Clone(
			host.Options,
		)
	default:
		d.Servers = slices.Clone(r.Cluster)
		if r.Domain != "" {
			d.Searches = []string{p.Namespace + ".svc." + r.Domain, "svc." + r.Domain, r.Domain}
		}
		d.Searches = append(d.Searches, host.Searches...)
		d.Options = []string{"ndots:5"}
	}
	if c := p.Spec.DNSConfig; c != nil {
		d.Servers = append(d.Servers, c.Nameservers...)
		d.Searches = append(d.Searches, c.Searches...)
		for _, o := range c.Options {
			d.Options = slices.DeleteFunc(d.Options, func(current string) bool {
				name, _, _ := strings.Cut(current, ":")
				return name == o.Name
			})
			option := o.Name
			if o.Value != nil && *o.Value != "" {
				option += ":" + *o.Value
			}
			d.Options = append(d.Options, option)
		}
	}
	d.Servers, d.Searches = unique(d.Servers), unique(d.Searches)
	if len(d.Servers) > maxServers {
		d.Servers = d.Servers[:maxServers]
		omitted = append(omitted,
			"Nameserver limits were exceeded, some nameservers have been omitted, "+
				"the applied nameserver line is: "+strings.Join(d.Servers, " "))
	}
	if fitting := fitSearches(d.Searches); len(fitting) < len(d.Searches) {
		d.Searches = fitting
		omitted = append(omitted,
			"Search Line limits were exceeded, some search paths have been omitted, "+
				"the applied search line is: "+strings.Join(fitting, " "))
	}
	return d, omitted
}

// fitSearches returns the leading search paths that fit the limits. It skips paths that are too long for a domain name.
func fitSearches(searches []string) []string {
	fitting, chars := []string{}, 0
	for _, s := range searches {
		if len(s) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		if chars += len(s); len(fitting) == maxSearches || chars+len(fitting) > maxSearchChars {
			break
		}
		fitting = append(fitting, s)
	}
	return fitting
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// ReadResolver reads a resolv.conf.
func ReadResolver(path string) (*runtime.DNSConfig, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := &runtime.DNSConfig{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			d.Servers = append(d.Servers, fields[1])
		case "search", "domain":
			d.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					d.Searches = append(d.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			d.Options = append(d.Options, fields[1:]...)
		}
	}
	return d, lines.Err()
}
