package block

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

// declaredNetwork is a network of the cluster. attribute is the one that declares it.
type declaredNetwork struct {
	attribute string
	prefix    netip.Prefix
}

// Validate checks how blocks fit together. at returns the range of a block's header.
func Validate(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	var networks []declaredNetwork
	for _, p := range c.PodCIDRs {
		networks = append(networks, declaredNetwork{"pod_cidrs", p})
	}
	for _, p := range c.ServiceCIDRs {
		networks = append(networks, declaredNetwork{"service_cidrs", p})
	}
	diags = append(diags, checkOverlaps(c, networks, at)...)
	diags = append(diags, checkMachines(c, networks, at)...)
	diags = append(diags, checkVirtualAddress(c, networks, at)...)
	if c.ControlPlaneForm == config.FormStaticPods {
		addControlPlaneNodes(c)
	}
	diags = append(diags, checkControlPlane(c, at)...)
	diags = append(diags, checkKubelets(c, at)...)
	diags = append(diags, checkDuplicates(c, at)...)
	diags = append(diags, checkDefaultClass(c, at)...)
	diags = append(diags, checkPools(c, at)...)
	diags = append(diags, orderGitSources(c, at)...)
	diags = append(diags, checkMoves(c, at)...)
	return append(diags, checkInstances(c, at)...)
}

// ValidateObjects checks how the objects and workloads of a configuration without a cluster fit together.
func ValidateObjects(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	diags = append(diags, checkDuplicates(c, at)...)
	diags = append(diags, checkDefaultClass(c, at)...)
	diags = append(diags, orderGitSources(c, at)...)
	for _, o := range c.Objects {
		if o.Ignored.All || len(o.Ignored.Fields) > 0 {
			diags = append(diags, ignoredError(at(o.Source), o.Address))
		}
	}
	for _, w := range c.Workloads {
		if w.Ignored.All || len(w.Ignored.Fields) > 0 {
			diags = append(diags, ignoredError(at(w.Source), w.Address))
		}
	}
	return diags
}

// ignoredError is the error of a block in a Git repository that ignores changes of fields.
func ignoredError(at *hcl.Range, address string) *hcl.Diagnostic {
	return newError(at, "Fields that cannot be ignored", "ignore_changes of %s has no effect on objects of a Git "+
		"repository. Leave the field out, or set the annotation gitops.clusterctl.local/drift of the object.", address)
}

// checkOverlaps rejects networks of the cluster that overlap.
func checkOverlaps(c *config.Cluster, networks []declaredNetwork, at func(config.Source) *hcl.Range) (
	diags hcl.Diagnostics) {
	for i, a := range networks {
		for _, b := range networks[:i] {
			if a.prefix.Overlaps(b.prefix) {
				diags = append(diags, newError(at(c.Source), "Overlapping networks",
					"%s %s overlaps %s %s: an address in both would be a pod's and a service's at once. Take one of "+
						"them from another range, as pod_cidrs = [\"10.244.0.0/16\"] and service_cidrs = "+
						"[\"10.96.0.0/16\"].", a.attribute, a.prefix, b.attribute, b.prefix))
			}
		}
	}
	return diags
}

// checkMachines rejects machines with the same name or address, and machines within the cluster's own networks.
func checkMachines(c *config.Cluster, networks []declaredNetwork, at func(config.Source) *hcl.Range) (
	diags hcl.Diagnostics) {
	names, addresses := map[string]config.Machine{}, map[netip.Addr]config.Machine{}
	for _, m := range c.Machines {
		if other, ok := names[m.Name]; ok {
			diags = append(diags, newError(at(m.Source), "Duplicate machine name",
				"%s and %s (%s) would both be node %q. Give one of them another name = \"…\".", m.Address,
				other.Address, positionText(other.Source), m.Name))
		}
		if other, ok := addresses[m.IP]; ok {
			diags = append(diags, newError(at(m.Source), "Duplicate machine address",
				"%s and %s (%s) both have the address %s. A machine is declared once, with all its roles.", m.Address,
				other.Address, positionText(other.Source), m.IP))
		}
		diags = append(diags, checkSecondAddress(c, m, at)...)
		if other, ok := addresses[m.SecondIP]; ok && m.SecondIP.IsValid() {
			diags = append(diags, newError(at(m.Source), "Duplicate machine address",
				"%s and %s (%s) both have the address %s.", m.Address, other.Address, positionText(other.Source),
				m.SecondIP))
		}
		names[m.Name], addresses[m.IP] = m, m
		if m.SecondIP.IsValid() {
			addresses[m.SecondIP] = m
		}
		diags = append(diags, checkOutsideNetworks(m, networks, at)...)
	}
	return diags
}

// checkOutsideNetworks rejects a machine whose addresses are in a network of the cluster.
func checkOutsideNetworks(m config.Machine, networks []declaredNetwork, at func(config.Source) *hcl.Range) (
	diags hcl.Diagnostics) {
	for _, n := range networks {
		for _, ip := range []netip.Addr{m.IP, m.SecondIP} {
			if n.prefix.Contains(ip) {
				diags = append(diags, newError(at(m.Source), "Overlapping networks",
					"The address %s of %s lies in %s %s. Machines' addresses must be outside the cluster's own "+
						"networks: change %s.", ip, m.Address, n.attribute, n.prefix, n.attribute))
			}
		}
	}
	return diags
}

// checkVirtualAddress rejects a virtual address within the cluster's own networks. It clears the virtual address if it
// is the address of a machine.
func checkVirtualAddress(c *config.Cluster, networks []declaredNetwork, at func(config.Source) *hcl.Range) (
	diags hcl.Diagnostics) {
	if slices.ContainsFunc(c.Machines, func(m config.Machine) bool {
		return m.IP == c.VirtualAddress || m.SecondIP == c.VirtualAddress
	}) {
		c.VirtualAddress = netip.Addr{} // the endpoint is a machine's own address, so it does not move
	}
	for _, n := range networks {
		if n.prefix.Contains(c.VirtualAddress) {
			diags = append(diags, newError(at(c.Source), "Overlapping networks",
				"The virtual address %s lies in %s %s. It must be a free address of the machines' own network.",
				c.VirtualAddress, n.attribute, n.prefix))
		}
	}
	return diags
}

// checkControlPlane rejects a cluster without a control plane, or with fewer machines in it than etcd members.
func checkControlPlane(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	control := len(c.ControlPlane())
	if len(c.Machines) > 0 && control == 0 && len(c.Deferred) == 0 {
		diags = append(diags, newError(at(c.Source), "No control plane",
			"No machine has the role %q; a cluster needs at least one.", config.RoleControlPlane))
	}
	switch {
	case c.Etcd.Members == 0:
		c.Etcd.Members = config.EtcdMembers(control)
	case c.Etcd.Members > control && control > 0 && len(c.Deferred) == 0:
		diags = append(diags, newError(at(c.Source), "Too few machines for etcd",
			"etcd { members = %d } needs as many machines with the role %q, and there are %d. Add machines, or leave "+
				"members out: then it is %d.", c.Etcd.Members, config.RoleControlPlane, control,
			config.EtcdMembers(control)))
	}
	return diags
}

// addControlPlaneNodes makes nodes of machines whose control plane runs as static pods. Machines that are not declared
// as nodes get a taint that keeps other pods away.
func addControlPlaneNodes(c *config.Cluster) {
	for i := range c.Machines {
		m := &c.Machines[i]
		if !m.HasRole(config.RoleControlPlane) {
			continue
		}
		labels := map[string]string{config.ControlPlaneNode: ""}
		maps.Copy(labels, m.Labels)
		m.Labels = labels
		if !m.HasRole(config.RoleNode) {
			m.Roles = append(slices.Clone(m.Roles), config.RoleNode)
			m.Taints = append(slices.Clone(m.Taints), config.Taint{Key: config.ControlPlaneNode, Effect: "NoSchedule"})
		}
	}
}

func checkDuplicates(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	seen := map[string]config.Object{}
	for _, o := range c.Objects {
		metadata, _ := o.Content["metadata"].(map[string]any)
		namespace, _ := metadata["namespace"].(string)
		key := fmt.Sprint(o.Content["apiVersion"], " ", o.Content["kind"], " ", cmp.Or(namespace, "default"), "/",
			metadata["name"])
		if other, ok := seen[key]; ok {
			diags = append(diags, newError(at(o.Source), "Duplicate object", "%s and %s (%s) are the same object.",
				o.Address, other.Address, positionText(other.Source)))
		}
		seen[key] = o
	}
	workloads, owners := map[string]config.Workload{}, map[string]config.Workload{}
	for _, w := range c.Workloads {
		key := w.Namespace + "/" + w.Name
		if other, ok := workloads[key]; ok {
			diags = append(diags, newError(at(w.Source), "Duplicate workload", "Workload %s is also declared in %s.",
				key, positionText(other.Source)))
		}
		workloads[key] = w
		for _, k := range w.ObjectKeys() {
			object := fmt.Sprintf("%s %s %s/%s", k.APIVersion, k.Kind, w.Namespace, k.Name)
			if o, ok := seen[object]; ok {
				diags = append(diags, newError(at(o.Source), "Duplicate object",
					"%s makes the same object, %s (%s): both would be written by turns. Leave it out here, or "+
						"call it otherwise.", w.Address, object, positionText(w.Source)))
			}
			if other, ok := owners[object]; ok && other.Name != w.Name {
				diags = append(diags, newError(at(w.Source), "Duplicate object",
					"%s and %s (%s) make the same object, %s. Give one of them another name.", w.Address,
					other.Address, positionText(other.Source), object))
			}
			owners[object] = w
		}
	}
	return diags
}

// checkInstances returns errors for instances in depends_on that do not exist.
func checkInstances(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	if len(c.Deferred) > 0 {
		return nil
	}
	existing := map[string]bool{}
	for _, m := range c.Machines {
		existing[m.Address] = true
	}
	for _, w := range c.Workloads {
		existing[w.Address] = true
	}
	for _, o := range c.Objects {
		existing[o.Block] = true
	}
	for _, p := range c.Pools {
		existing[p.Address] = true
	}
	check := func(address string, after []string, s config.Source) {
		for _, a := range after {
			if strings.HasSuffix(a, "]") && !existing[a] && !strings.HasPrefix(a, "image.") {
				diags = append(diags, newError(at(s), "Unknown reference",
					"%s depends on %s, and there is no such instance.%s", address, a,
					Suggest(a, slices.Sorted(maps.Keys(existing)))))
			}
		}
	}
	for _, w := range c.Workloads {
		check(w.Address, w.DependsOn, w.Source)
	}
	for _, o := range c.Objects {
		check(o.Address, o.DependsOn, o.Source)
	}
	return diags
}

func positionText(s config.Source) string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// checkSecondAddress returns an error if a machine lacks the second address that dual-stack pods need, or has one that
// is not used.
func checkSecondAddress(c *config.Cluster, m config.Machine, at func(config.Source) *hcl.Range) hcl.Diagnostics {
	switch both := len(c.PodCIDRs) > 1; {
	case both && !m.IP.Is4():
		return hcl.Diagnostics{
			newError(at(m.Source), "Address of the wrong family",
				"The address %s of %s is not of IPv4, and the first of pod_cidrs is. Write the IPv4 address in "+
					"address, and this one in second_address.", m.IP, m.Address),
		}
	case both && !m.SecondIP.IsValid():
		return hcl.Diagnostics{newError(at(m.Source), "Machine without a second address",
			"Pods have addresses of both families, and %s has none of IPv6 by which the other machines could reach "+
				"its pods. Write second_address = \"…\".", m.Address)}
	case !both && m.SecondIP.IsValid():
		return hcl.Diagnostics{newError(at(m.Source), "Second address that nothing uses",
			"%s has the second address %s, and pods have addresses of one family alone. Leave it out, or give "+
				"pod_cidrs a network of each family.", m.Address, m.SecondIP)}
	}
	return nil
}
