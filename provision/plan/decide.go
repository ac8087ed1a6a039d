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

// DecideMembers decides how store members that have not started yet will start: the members of a new store together,
// later ones by joining the existing members. removed names members that are removed before that. DecideMembers returns
// all members by their names, and does not change s.
func DecideMembers(c *config.Cluster, s *state.State, removed []string) map[string]state.Member {
	list := map[string]state.Member{}
	for name, m := range s.Etcd {
		if !slices.Contains(removed, name) {
			list[name] = m
		}
	}
	existing := len(list) > 0
	first := map[string]string{} // peer URL by member name
	after := *s
	after.Etcd = list
	members := role.EtcdMachines(c, &after)
	for _, m := range members {
		first[m.Name] = role.PeerURL(m)
	}
	for _, m := range members {
		switch _, ok := list[m.Name]; {
		case ok:
		case existing:
			// the list of members is read from the store when this member joins
			list[m.Name] = state.Member{Existing: true}
		default:
			list[m.Name] = state.Member{InitialCluster: initialCluster(first)}
		}
	}
	return list
}

func initialCluster(list map[string]string) string {
	var parts []string
	for name, url := range list {
		parts = append(parts, name+"="+url)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// CheckUnchangeable returns an error if the configuration differs from the cluster in settings that cannot change. Pods
// and services have addresses in these networks, and certificates and resolv.conf contain the domain. Clusters of
// earlier releases did not record these settings.
func CheckUnchangeable(c *config.Cluster, made state.Fixed) error {
	var errs []error
	differs := func(attribute, before, after string) {
		if before != "" && before != after {
			errs = append(errs, fmt.Errorf("%s:%d: %s was %s when the cluster was made, and is %s now: what runs has "+
				"addresses and certificates by it, and would be cut off. Put it back, or declare a new cluster in a "+
				"folder of its own and move what runs there", c.Source.File, c.Source.Line, attribute, before, after))
		}
	}
	differs("pod_cidrs", joinPrefixes(made.PodCIDRs), joinPrefixes(c.PodCIDRs))
	differs("service_cidrs", joinPrefixes(made.ServiceCIDRs), joinPrefixes(c.ServiceCIDRs))
	differs("domain", made.Domain, c.Domain)
	if len(made.PodCIDRs) > 0 {
		settings, defaults := c.FixedSettings(), (&config.Cluster{}).FixedSettings()
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			// Earlier releases used the defaults and did not record them.
			differs(name, cmp.Or(made.Settings[name], defaults[name]), settings[name])
		}
	}
	return errors.Join(errs...)
}

func joinPrefixes(list []netip.Prefix) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// Describe describes a machine in a few words.
func Describe(f host.Facts) string {
	return fmt.Sprintf("%s, %d cpu, %d GiB", f.OS, f.CPUs, (f.Memory+(1<<29))>>30)
}

// DescribeEtcd describes the number of members and how many may be lost. unreached is the number of control-plane
// machines that were not reached.
func DescribeEtcd(c *config.Cluster, s *state.State, unreached int) string {
	n, control := len(role.EtcdMachines(c, s)), len(c.ControlPlane())
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("etcd: %d members, survives the loss of %d.", n, (n-1)/2)
	if unreached > 0 {
		text = fmt.Sprintf("etcd: %d members, of which %d may be lost; %s of the control plane not reached.", n,
			(n-1)/2, Number(unreached, "machine"))
	}
	if n == 1 {
		text = "etcd: 1 member, does not survive its loss."
	}
	if control > n {
		text += fmt.Sprintf(" (%d control-plane machines; an even or larger number of members would not survive more.)",
			control)
	}
	return text
}

// DescribeCertificates returns a sentence about the certificate that expires next.
func DescribeCertificates(next, now time.Time) string {
	if next.IsZero() {
		return ""
	}
	days := int(next.Sub(now).Hours() / 24)
	if days < 0 {
		return fmt.Sprintf("Certificates: one expired %s ago.", Number(-days, "day"))
	}
	return fmt.Sprintf("Certificates: the next expires in %s.", Number(days, "day"))
}

// JoinWarnings returns one line for each finding, with the machines that it applies to.
func JoinWarnings(found map[string][]string) []string {
	var list []string
	for _, text := range slices.Sorted(maps.Keys(found)) {
		machines := found[text]
		slices.Sort(machines)
		where := strings.Join(machines, ", ")
		const maximum = 3
		if len(machines) > maximum {
			where = fmt.Sprintf("%s and %d more", strings.Join(machines[:maximum], ", "), len(machines)-maximum)
		}
		list = append(list, where+": "+text+".")
	}
	return list
}
