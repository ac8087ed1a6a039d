package block

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/hcl/config"
)

type policyBlock struct {
	Directions []string      `hcl:"directions,optional" doc:"Restricted directions: ingress, egress or both." default:"those that have rules, or [\"ingress\"]"`
	DNS        *bool         `hcl:"dns,optional" doc:"Whether outgoing traffic to port 53 is allowed if egress is restricted." default:"true"`
	Ingress    []ingressRule `hcl:"ingress,block" doc:"Allowed incoming traffic."`
	Egress     []egressRule  `hcl:"egress,block" doc:"Allowed outgoing traffic."`
}

type ingressRule struct {
	From  []string `hcl:"from,optional" doc:"Sources: \"NAME\" for the pods of a workload of the namespace, \"NAMESPACE/NAME\", \"NAMESPACE/*\", \"*\" for all pods of the namespace, \"*/*\" for all pods, or a network such as \"10.0.0.0/8\"." default:"all"`
	Ports []string `hcl:"ports,optional" doc:"Ports of the pods: \"http\", \"8080\", \"8000-8100\" or \"53/udp\"." default:"all"`
}

type egressRule struct {
	To    []string `hcl:"to,optional" doc:"Destinations, written as in from." default:"all"`
	Ports []string `hcl:"ports,optional" doc:"Ports of the destinations, as in ingress." default:"all"`
}

// policyDirections are the values of directions.
var policyDirections = []string{"ingress", "egress"}

func (d *formDecoder) decodeNetworkPolicy() {
	raw := d.raw.NetworkPolicy
	if raw == nil {
		return
	}
	p := &config.NetworkPolicy{
		RestrictsIngress: slices.Contains(raw.Directions, "ingress") ||
			len(raw.Directions) == 0 && (len(raw.Ingress) > 0 || len(raw.Egress) == 0),
		RestrictsEgress: slices.Contains(raw.Directions, "egress") ||
			len(raw.Directions) == 0 && len(raw.Egress) > 0,
	}
	p.AllowsDNS = p.RestrictsEgress && valueOr(raw.DNS, true)
	d.w.NetworkPolicy = p
	for _, direction := range raw.Directions {
		if !slices.Contains(policyDirections, direction) {
			d.diags = append(d.diags, newError(nestedRange(d.b, "network_policy", "directions"), "Unknown direction",
				"%q is not known.%s Write ingress or egress.", direction, Suggest(direction, policyDirections)))
		}
	}
	for i, r := range raw.Ingress {
		p.Ingress = append(p.Ingress, d.decodeRule("ingress", i, "from", r.From, r.Ports))
	}
	for i, r := range raw.Egress {
		p.Egress = append(p.Egress, d.decodeRule("egress", i, "to", r.To, r.Ports))
	}
	if len(raw.Ingress) > 0 && !p.RestrictsIngress || len(raw.Egress) > 0 && !p.RestrictsEgress {
		d.diags = append(d.diags, newError(nestedRange(d.b, "network_policy", "directions"), "Rules without effect",
			"directions leaves out a direction that has rules, so that all of its traffic is allowed."))
	}
	if raw.DNS != nil && !p.RestrictsEgress {
		d.diags = append(d.diags, newError(nestedRange(d.b, "network_policy", "dns"), "Setting without effect",
			"dns needs restricted outgoing traffic. Add egress to directions, or leave it out."))
	}
}

// decodeRule decodes the rule with an index in a direction. peers is the name of the attribute with the peers.
func (d *formDecoder) decodeRule(direction string, i int, peers string, from, ports []string) (
	rule config.NetworkRule) {
	for _, text := range from {
		peer, err := parsePeer(text)
		if err != nil {
			d.diags = append(d.diags, newError(ruleRange(d.b, direction, i, peers), "Invalid peer", "%s.", err))
		}
		rule.Peers = append(rule.Peers, peer)
	}
	for _, text := range ports {
		port, err := parseNetworkPort(text)
		if err != nil {
			d.diags = append(d.diags, newError(ruleRange(d.b, direction, i, "ports"), "Invalid port", "%s.", err))
		}
		rule.Ports = append(rule.Ports, port)
	}
	return rule
}

// ruleRange returns the range of an attribute of the rule with an index in a direction, or of its block.
func ruleRange(b *hcl.Block, direction string, i int, name string) *hcl.Range {
	native, ok := nativeBody(b.Body)
	if !ok {
		return attributeRange(b, b.Body, "network_policy")
	}
	for _, policy := range native.Blocks {
		if policy.Type != "network_policy" {
			continue
		}
		for _, rule := range policy.Body.Blocks {
			if rule.Type != direction {
				continue
			}
			if i--; i >= 0 {
				continue
			}
			if a, ok := rule.Body.Attributes[name]; ok {
				return a.SrcRange.Ptr()
			}
			return rule.DefRange().Ptr()
		}
	}
	return attributeRange(b, b.Body, "network_policy")
}

// parsePeer parses one side of allowed traffic: a network, WORKLOAD, NAMESPACE/WORKLOAD, or * in place of either name.
func parsePeer(text string) (config.Peer, error) {
	if strings.ContainsAny(text, ".:") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return config.Peer{}, fmt.Errorf("%q is not a network, such as \"10.0.0.0/8\"", text)
		}
		return config.Peer{CIDR: prefix.String()}, nil
	}
	namespace, name, isOther := strings.Cut(text, "/")
	if !isOther {
		namespace, name = "", text
	}
	for i, part := range []string{name, namespace} {
		if part != "*" && !(i == 1 && !isOther) && len(validation.IsDNS1123Label(part)) > 0 {
			return config.Peer{}, fmt.Errorf("%q is not \"WORKLOAD\", \"NAMESPACE/WORKLOAD\", \"NAMESPACE/*\", \"*\", "+
				"\"*/*\" or a network", text)
		}
	}
	if name == "*" {
		name = ""
	}
	return config.Peer{Namespace: namespace, Workload: name}, nil
}

// parseNetworkPort parses a port: a name, a number or a range of numbers, with an optional protocol after a slash.
func parseNetworkPort(text string) (p config.NetworkPort, err error) {
	port, protocol, hasProtocol := strings.Cut(text, "/")
	p = config.NetworkPort{Port: port, Protocol: "TCP"}
	if hasProtocol {
		p.Protocol = strings.ToUpper(protocol)
	}
	if !slices.Contains([]string{"TCP", "UDP", "SCTP"}, p.Protocol) {
		return p, fmt.Errorf("%q is not a protocol: write tcp, udp or sctp", protocol)
	}
	if _, ok := portNumber(port); ok || len(validation.IsValidPortName(port)) == 0 {
		return p, nil
	}
	low, high, isRange := strings.Cut(port, "-")
	first, ok := portNumber(low)
	last, ok2 := portNumber(high)
	if !isRange || !ok || !ok2 || last < first {
		return p, fmt.Errorf("%q is not a port, such as \"http\", \"8080\", \"8000-8100\" or \"53/udp\"", text)
	}
	p.Port, p.End = low, last
	return p, nil
}
