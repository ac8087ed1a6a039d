package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
)

// Members decides how members of the store that have not started yet will: the first
// ones together, later ones by joining those that are there. gone names members
// that are removed before.
func Members(c *config.Cluster, s *state.State, gone []string) {
	for _, name := range gone {
		delete(s.Etcd, name)
	}
	existing := len(s.Etcd) > 0
	first := map[string]string{} // name to peer URL
	members := role.EtcdMachines(c, s)
	for _, m := range members {
		first[m.Name] = role.PeerURL(m)
	}
	for _, m := range members {
		switch _, ok := s.Etcd[m.Name]; {
		case ok:
		case existing:
			s.Etcd[m.Name] = state.Member{Existing: true} // the store itself says beside whom, when it joins
		default:
			s.Etcd[m.Name] = state.Member{InitialCluster: initialCluster(first)}
		}
	}
}

func initialCluster(list map[string]string) string {
	var parts []string
	for name, url := range list {
		parts = append(parts, name+"="+url)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// Unchangeable is an error when a configuration says something else than the cluster was made with, of what cannot
// change: pods and services have addresses of these networks, certificates and resolv.conf have the domain. A cluster
// of an earlier release, which did not write it down, has none.
func Unchangeable(c *config.Cluster, made state.Fixed) error {
	var errs []error
	differs := func(attribute, was, is string) {
		if was != "" && was != is {
			errs = append(
				errs,
				fmt.Errorf(
					"%s:%d: %s was %s when the cluster was made, and is %s now: what runs has addresses and "+
						"certificates by it, and would be cut off. Put it back, or declare a new cluster in a folder "+
						"of its own and move what runs there",
					c.Source.File,
					c.Source.Line,
					attribute,
					was,
					is,
				),
			)
		}
	}
	differs("pod_cidrs", prefixes(made.PodCIDRs), prefixes(c.PodCIDRs))
	differs("service_cidrs", prefixes(made.ServiceCIDRs), prefixes(c.ServiceCIDRs))
	differs("domain", made.Domain, c.Domain)
	if len(made.PodCIDRs) > 0 {
		settings, usual := c.FixedSettings(), (&config.Cluster{}).FixedSettings()
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			// earlier releases had the defaults, and did not write them down
			differs(name, cmp.Or(made.Settings[name], usual[name]), settings[name])
		}
	}
	return errors.Join(errs...)
}

func prefixes(list []netip.Prefix) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// Describe says what a machine is, in a few words.
func Describe(f host.Facts) string {
	return fmt.Sprintf("%s, %d cpu, %d GiB", f.OS, f.CPUs, (f.Memory+(1<<29))>>30)
}

// EtcdLine explains the number of members, of whose machines some may not have been reached.
func EtcdLine(c *config.Cluster, s *state.State, unreached int) string {
	n, control := len(role.EtcdMachines(c, s)), len(c.ControlPlane())
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("etcd: %d members, survives the loss of %d.", n, (n-1)/2)
	if unreached > 0 {
		text = fmt.Sprintf(
			"etcd: %d members, of which %d may be lost; %s of the control plane not reached.",
			n,
			(n-1)/2,
			Number(unreached, "machine"),
		)
	}
	if n == 1 {
		text = "etcd: 1 member, does not survive its loss."
	}
	if control > n {
		text += fmt.Sprintf(
			" (%d control-plane machines; an even or larger number of members would not survive more.)",
			control,
		)
	}
	return text
}

// CertificateLine says when the next certificate ends.
func CertificateLine(next, now time.Time) string {
	if next.IsZero() {
		return ""
	}
	days := int(next.Sub(now).Hours() / 24)
	if days < 0 {
		return fmt.Sprintf("Certificates: one expired %s ago.", Number(-days, "day"))
	}
	return fmt.Sprintf("Certificates: the next expires in %s.", Number(days, "day"))
}

// Warnings says each finding once, with the machines that it is about.
func Warnings(found map[string][]string) []string {
	var list []string
	for _, text := range slices.Sorted(maps.Keys(found)) {
		machines := found[text]
		slices.Sort(machines)
		where := strings.Join(machines, ", ")
		const most = 3
		if len(machines) > most {
			where = fmt.Sprintf("%s and %d more", strings.Join(machines[:most], ", "), len(machines)-most)
		}
		list = append(list, where+": "+text+".")
	}
	return list
}
