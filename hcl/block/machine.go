package block

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
)

type machineBlock struct {
	Name      string            `hcl:"name,optional" doc:"Name of the Node and of the etcd member." default:"the block's label, with the key or index"`
	Address   string            `hcl:"address" doc:"IP address at which the other machines reach this one."`
	Second    string            `hcl:"second_address,optional" doc:"IPv6 address at which the other machines reach this one, in a cluster whose pods have addresses of both families."`
	External  []string          `hcl:"external_addresses,optional" doc:"IP addresses at which clients outside the cluster reach the machine. They become ExternalIP addresses of the Node."`
	Region    string            `hcl:"region,optional" doc:"Region that the machine is in: the Node's label topology.kubernetes.io/region."`
	Zone      string            `hcl:"zone,optional" doc:"Zone that the machine is in: the Node's label topology.kubernetes.io/zone. Pods and endpoints are spread over zones."`
	Port      *int              `hcl:"port,optional" doc:"Port of sshd." default:"22, or ~/.ssh/config's"`
	Roles     []string          `hcl:"roles" doc:"control-plane, node, or both."`
	Labels    map[string]string `hcl:"labels,optional" doc:"Labels of the Node."`
	Taints    []string          `hcl:"taints,optional" doc:"Taints that the Node registers with, each as key=value:effect."`
	SSH       *sshBlock         `hcl:"ssh,block" doc:"How to log in. Omitted settings come from ~/.ssh/config, then from OpenSSH's defaults."`
	Kubelet   *kubeletBlock     `hcl:"kubelet,block" doc:"Settings of this machine's kubelet. They take precedence over those of the cluster's block kubelet."`
	Lifecycle *lifecycleBlock   `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
}

// kubeletLabels are the labels that a kubelet sets on its own Node.
var kubeletLabels = []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable}

type sshBlock struct {
	Host            string `hcl:"host,optional" doc:"Name or address to log in at." default:"the machine's address"`
	User            string `hcl:"user,optional" doc:"User to log in as: root, or a user who may use sudo or doas." default:"~/.ssh/config's, or your name"`
	Port            *int   `hcl:"port,optional" doc:"Port of sshd." default:"22, or ~/.ssh/config's"`
	Key             string `hcl:"key,optional" doc:"Path of a private key. Without it, keys of the agent and the default keys are tried."`
	Jump            string `hcl:"jump,optional" doc:"[user@]host[:port] of a bastion to go through."`
	KnownHosts      string `hcl:"known_hosts,optional" doc:"Path of a file of host keys." default:"~/.ssh/known_hosts"`
	PasswordEnv     string `hcl:"password_env,optional" doc:"Environment variable that holds the password to log in with."`
	SudoPasswordEnv string `hcl:"sudo_password_env,optional" doc:"Environment variable that holds the password for sudo."`
}

func decodeMachine(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	m, diags := toMachine(x, b)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	c.Machines = append(c.Machines, m)
	return cty.ObjectVal(map[string]cty.Value{
		"name": cty.StringVal(m.Name), "address": cty.StringVal(m.IP.String()),
		"roles": stringList(m.Roles), "labels": stringMap(m.Labels),
	}), diags
}

func toMachine(x *Context, b *hcl.Block) (config.Machine, hcl.Diagnostics) {
	var raw machineBlock
	body := b.Body
	diags := x.decode(body, x.Eval, &raw)
	if diags.HasErrors() {
		return config.Machine{}, diags
	}
	diags = append(diags, raw.Lifecycle.rejectIgnore("A machine block does not support ignore_changes, because "+
		"only clusterctl changes what the block declares. Omit settings that clusterctl must not manage, such as "+
		"labels that you set with kubectl.")...)
	m := config.Machine{
		Address:        x.fullAddress("machine." + b.Labels[0]),
		Roles:          raw.Roles,
		Labels:         raw.Labels,
		PreventDestroy: raw.Lifecycle.preventDestroy(),
		Source:         sourceOf(b),
	}
	diags = append(diags, setMachineName(x, b, raw, &m)...)
	diags = append(diags, setMachineAddresses(b, raw, &m)...)
	diags = append(diags, setExternalAddresses(b, raw, &m)...)
	diags = append(diags, addTopologyLabels(&m, b, raw)...)
	diags = append(diags, checkRoles(b, &m)...)
	diags = append(diags, checkLabels(b, &m)...)
	diags = append(diags, setTaints(b, raw, &m)...)
	diags = append(diags, setSSH(x, b, raw, &m)...)
	if k := raw.Kubelet; k != nil {
		diags = append(diags, decodeChosen(x, b, "kubelet", k.Body, daemons.DefaultKubeletSettings(), &m.Kubelet)...)
	}
	return m, diags
}

// setMachineName sets the name of the machine, which is also its node's.
func setMachineName(x *Context, b *hcl.Block, raw machineBlock, m *config.Machine) (diags hcl.Diagnostics) {
	m.Name = orDefault(raw.Name, x.defaultName(b.Labels[0]))
	if len(m.Name) > validation.LabelValueMaxLength {
		diags = append(diags, newError(attributeRange(b, b.Body, "name"), "Machine name too long",
			"%q has %d characters. The maximum is %d, because the name is the label kubernetes.io/hostname.",
			m.Name, len(m.Name), validation.LabelValueMaxLength))
	} else if errs := validation.IsDNS1123Subdomain(m.Name); len(errs) > 0 {
		diags = append(diags, newError(attributeRange(b, b.Body, "name"), "Invalid machine name", "%q cannot name a "+
			"node: "+
			"%s.", m.Name, errs[0]))
	}
	return diags
}

// setMachineAddresses sets the addresses at which other machines reach the machine.
func setMachineAddresses(b *hcl.Block, raw machineBlock, m *config.Machine) (diags hcl.Diagnostics) {
	ip, err := netip.ParseAddr(raw.Address)
	if err != nil {
		diags = append(diags, newError(attributeRange(b, b.Body, "address"), "Invalid address",
			"%q is not an IP address. The address is the one at which the other machines reach this one; a name "+
				"to connect to goes into ssh { host = … }.", raw.Address))
	}
	if reason := unreachableReason(ip); err == nil && reason != "" {
		diags = append(diags, newError(attributeRange(b, b.Body, "address"), "Invalid address",
			"Other machines cannot reach this one at %q: %s.", raw.Address, reason))
	}
	m.IP = ip
	if raw.Second != "" {
		if m.SecondIP, err = netip.ParseAddr(raw.Second); err != nil || !m.SecondIP.Is6() ||
			unreachableReason(m.SecondIP) != "" {
			diags = append(diags, newError(attributeRange(b, b.Body, "second_address"), "Invalid second address",
				"%q is not an IPv6 address by which other machines can reach this one, as \"fd00:99::11\".",
				raw.Second))
		}
	}
	return diags
}

// setExternalAddresses sets the addresses that are only written to the Node's status.
func setExternalAddresses(b *hcl.Block, raw machineBlock, m *config.Machine) (diags hcl.Diagnostics) {
	for _, text := range raw.External {
		a, err := netip.ParseAddr(text)
		if err != nil || unreachableReason(a) != "" {
			diags = append(diags, newError(attributeRange(b, b.Body, "external_addresses"), "Invalid external address",
				"%q is not an IP address by which others can reach the machine, as \"203.0.113.7\".", text))
			continue
		}
		if slices.Contains(m.External, a) {
			diags = append(diags, newError(attributeRange(b, b.Body, "external_addresses"), "Invalid external address",
				"%q is in the list twice. Write it once.", text))
			continue
		}
		m.External = append(m.External, a)
	}
	return diags
}

// checkRoles checks that the machine has roles, and that they exist.
func checkRoles(b *hcl.Block, m *config.Machine) (diags hcl.Diagnostics) {
	if len(m.Roles) == 0 {
		diags = append(diags, newError(attributeRange(b, b.Body, "roles"), "No roles",
			"A machine has at least one of the roles %q and %q.", config.RoleControlPlane, config.RoleNode))
	}
	for _, r := range m.Roles {
		if supported := []string{config.RoleControlPlane, config.RoleNode}; !slices.Contains(supported, r) {
			diags = append(diags, newError(attributeRange(b, b.Body, "roles"), "Unknown role",
				"%q is not a role.%s The roles are %q and %q.", r, Suggest(r, supported), supported[0], supported[1]))
		}
	}
	return diags
}

// checkLabels rejects labels that the API server rejects, and those that the kubelet sets.
func checkLabels(b *hcl.Block, m *config.Machine) (diags hcl.Diagnostics) {
	for k, v := range m.Labels {
		for _, e := range append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...) {
			diags = append(diags, newError(attributeRange(b, b.Body, "labels"), "Invalid label", "%s=%s: %s.", k, v, e))
		}
	}
	for _, label := range kubeletLabels {
		if v, ok := m.Labels[label]; ok && (label != corev1.LabelHostname || v != m.Name) {
			diags = append(diags, newError(attributeRange(b, b.Body, "labels"), "Label of the kubelet",
				"%s describes the machine, and the kubelet sets it at every start. Omit it, or choose another "+
					"label.", label))
		}
	}
	return diags
}

// setTaints parses the taints.
func setTaints(b *hcl.Block, raw machineBlock, m *config.Machine) (diags hcl.Diagnostics) {
	for _, text := range raw.Taints {
		t, ok := parseTaint(text)
		if !ok {
			diags = append(diags, newError(attributeRange(b, b.Body, "taints"), "Invalid taint",
				"%q is not key=value:effect with an effect of NoSchedule, PreferNoSchedule or NoExecute.", text))
		}
		if slices.ContainsFunc(m.Taints, func(other config.Taint) bool {
			return other.Key == t.Key && other.Effect == t.Effect
		}) {
			diags = append(diags, newError(attributeRange(b, b.Body, "taints"), "Duplicate taint",
				"There are two taints with the key %q and the effect %s, which the API server rejects. Remove one "+
					"of them.", t.Key, t.Effect))
		}
		m.Taints = append(m.Taints, t)
	}
	return diags
}

// setSSH sets how clusterctl connects to the machine.
func setSSH(x *Context, b *hcl.Block, raw machineBlock, m *config.Machine) (diags hcl.Diagnostics) {
	m.SSH.Port = valueOr(raw.Port, 0)
	if s := raw.SSH; s != nil {
		m.SSH = config.SSH{
			Host:            s.Host,
			User:            s.User,
			Port:            valueOr(s.Port, m.SSH.Port),
			Jump:            s.Jump,
			PasswordEnv:     s.PasswordEnv,
			SudoPasswordEnv: s.SudoPasswordEnv,
		}
		if s.Key != "" {
			m.SSH.Key = x.Path(s.Key)
		}
		if s.KnownHosts != "" {
			m.SSH.KnownHosts = x.Path(s.KnownHosts)
		}
	}
	if m.SSH.Port < 0 || m.SSH.Port > 65535 {
		diags = append(diags, newError(attributeRange(b, b.Body, "ssh"), "Invalid port", "%d is not a port.",
			m.SSH.Port))
	}
	return diags
}

// unreachableReason returns why an address cannot be reached from other machines, or "" if nothing about the address
// itself prevents that.
func unreachableReason(a netip.Addr) string {
	switch {
	case a.Zone() != "":
		return "an address with a zone is valid only on its own machine"
	case a.Is4In6():
		return fmt.Sprintf("write the IPv4 address as %q", a.Unmap())
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return "it is an unspecified address"
	case a.IsLoopback():
		return "it is a loopback address"
	case a.IsMulticast():
		return "it is a multicast address"
	case a.IsLinkLocalUnicast():
		return "it is a link-local address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is the broadcast address"
	}
	return ""
}

// addTopologyLabels adds region and zone to the labels, from which they are read.
func addTopologyLabels(m *config.Machine, b *hcl.Block, raw machineBlock) (diags hcl.Diagnostics) {
	for _, p := range []struct{ attribute, label, value string }{
		{"region", corev1.LabelTopologyRegion, raw.Region}, {"zone", corev1.LabelTopologyZone, raw.Zone},
	} {
		if p.value == "" {
			continue
		}
		if labelled, twice := m.Labels[p.label]; twice && labelled != p.value {
			diags = append(diags, newError(attributeRange(b, b.Body, p.attribute), "Two values for one label",
				"%s is %q, and labels say %s = %q. Leave one of them out.", p.attribute, p.value, p.label, labelled))
			continue
		}
		if errs := validation.IsValidLabelValue(p.value); len(errs) > 0 {
			diags = append(diags, newError(attributeRange(b, b.Body, p.attribute), "Invalid "+p.attribute,
				"%q cannot be the value of the label %s: %s.", p.value, p.label, errs[0]))
			continue
		}
		labels := maps.Clone(m.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[p.label] = p.value
		m.Labels = labels
	}
	return diags
}

func parseTaint(text string) (config.Taint, bool) {
	left, effect, ok := strings.Cut(text, ":")
	key, value, _ := strings.Cut(left, "=")
	t := config.Taint{Key: key, Value: value, Effect: effect}
	isKnown := slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect)
	return t, ok && isKnown && len(validation.IsQualifiedName(key)) == 0 &&
		len(validation.IsValidLabelValue(value)) == 0
}
