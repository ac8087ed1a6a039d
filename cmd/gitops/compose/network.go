package compose

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// maxPorts is the maximum number of ports of a service. A range counts as its ports.
const maxPorts = 1000

// publish converts published and exposed ports, and returns the ports of the container. Other services use the port of
// the container, so the Service has that port too.
func (w *workload) publish() []any {
	named := map[string]bool{}
	add := func(name, protocol string, port int64, target, application string) {
		if named[name] || port <= 0 || port >= 1<<16 {
			return
		}
		named[name] = true
		p := map[string]any{"name": name, "port": port, "targetPort": target, "protocol": protocol}
		if application != "" {
			p["appProtocol"] = application
		}
		w.ports = append(w.ports, p)
	}
	if n := len(asList(w.fields["ports"])); n > maxPorts {
		w.attributes.refuse("ports", "these are %d ports; at most %d are converted", n, maxPorts)
	}
	var list []any
	listed := map[string]string{} // names of the container's ports
	for _, p := range w.items("ports") {
		target, protocol := number(p.take("target")), strings.ToUpper(p.text("protocol"))
		if protocol == "" {
			protocol = "TCP"
		}
		application, mode, given := p.text("app_protocol"), p.text("mode"), p.text("name")
		key := fmt.Sprintf("%s-%d", strings.ToLower(protocol), target)
		name := key
		if other, ok := listed[key]; ok {
			name = other
		}
		if label := toLabel(given); given != "" && len(label) <= 15 {
			name = label
		} else if given != "" {
			p.report("name", "names of ports have at most 15 characters in Kubernetes")
		}
		c := map[string]any{"name": name, "containerPort": target, "protocol": protocol}
		text := asText(p.fields["published"])
		published, err := strconv.ParseInt(text, 10, 32)
		switch {
		case text == "":
		case err != nil:
			p.report("published", "%q is a range: Kubernetes needs one port", text)
		case mode == "host":
			c["hostPort"] = published
			if ip := p.text("host_ip"); ip != "" {
				c["hostIP"] = ip
			}
		default:
			p.report("published", "the Service is reachable inside of the cluster only: add an ingress, or give it "+
				"the type LoadBalancer")
			if published != target {
				another := fmt.Sprintf("%s-%d", strings.ToLower(protocol), published)
				add(another, protocol, published, name, application)
			}
		}
		p.drop("published")
		add(name, protocol, target, name, application)
		if listed[key] == "" {
			listed[key] = name
			list = append(list, c)
		}
		p.reportRest()
	}
	for _, port := range w.expose() {
		key := asText(port["name"])
		if listed[key] == "" {
			listed[key] = key
			list = append(list, port)
			add(key, asText(port["protocol"]), number(port["containerPort"]), key, "")
		}
	}
	sortBy(list, "name") // as in workload blocks
	sortBy(w.ports, "name")
	return list
}

// expose returns the ports that other services use.
func (w *workload) expose() (list []map[string]any) {
	for _, v := range asList(w.take("expose")) {
		text, protocol, hasProtocol := strings.Cut(asText(v), "/")
		if !hasProtocol {
			protocol = "tcp"
		}
		port, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			w.attributes.report("expose", "%q is a range: Kubernetes needs single ports", text)
			continue
		}
		list = append(list, map[string]any{"name": fmt.Sprintf("%s-%d", protocol, port), "containerPort": port,
			"protocol": strings.ToUpper(protocol)})
	}
	return list
}

// sortBy sorts maps by a text that they have.
func sortBy(list []any, field string) {
	slices.SortFunc(list, func(a, b any) int {
		return strings.Compare(asText(a.(map[string]any)[field]), asText(b.(map[string]any)[field]))
	})
}

// dns converts names of hosts and the configuration of DNS.
func (w *workload) dns() {
	if v := w.text("hostname"); v != "" {
		w.pod["hostname"] = toLabel(v)
	}
	hosts := types.HostsList{}
	if v := w.take("extra_hosts"); v != nil {
		if err := hosts.DecodeMapstructure(v); err != nil {
			w.attributes.report("extra_hosts", "%v", err)
		}
	}
	names := map[string][]any{}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		for _, ip := range hosts[name] {
			if ip == "host-gateway" {
				w.attributes.report("extra_hosts", "pods do not know the address of %s, their node", name)
				continue
			}
			names[ip] = append(names[ip], name)
		}
	}
	var aliases []any
	for _, ip := range slices.Sorted(maps.Keys(names)) {
		aliases = append(aliases, map[string]any{"ip": ip, "hostnames": names[ip]})
	}
	if len(aliases) > 0 {
		w.pod["hostAliases"] = aliases
	}
	dns := map[string]any{}
	for from, to := range map[string]string{"dns": "nameservers", "dns_search": "searches"} {
		if list := asList(w.take(from)); len(list) > 0 {
			dns[to] = list
		}
	}
	var options []any
	for _, option := range asList(w.take("dns_opt")) {
		name, value, hasValue := strings.Cut(asText(option), ":")
		o := map[string]any{"name": name}
		if hasValue {
			o["value"] = value
		}
		options = append(options, o)
	}
	if len(options) > 0 {
		dns["options"] = options
	}
	if len(dns) > 0 {
		w.pod["dnsConfig"] = dns
	}
}

// joinNetworks converts the further names that the service has in its networks.
func (w *workload) joinNetworks() {
	networks := w.below("networks")
	for name := range entries(networks.fields) {
		network := networks.below(name)
		for _, alias := range asList(network.take("aliases")) {
			if label := toLabel(asText(alias)); label != w.name && !slices.Contains(w.aliases, label) {
				w.aliases = append(w.aliases, label)
			}
		}
		network.reportRest()
	}
	if len(w.aliases) > 0 && len(w.ports) == 0 {
		w.attributes.report("networks", "a name needs a port of the service: declare it with expose")
	}
}

// policy adds the policy that lets only services of the same networks reach a service, and everything its published
// ports. If all of its networks are internal, it reaches nothing else either.
func (w *workload) policy() {
	networks := slices.Sorted(maps.Keys(pairs(w.shared["networks"])))
	if len(networks) == 0 || w.shared["network_mode"] != nil {
		return
	}
	isInternal := !slices.ContainsFunc(networks, func(n string) bool { return !w.internal[n] })
	if !w.isolates && !isInternal {
		return
	}
	var peers []string
	for _, n := range networks {
		peers = append(peers, w.members[n]...)
	}
	slices.Sort(peers)
	var values []any
	for _, peer := range slices.Compact(peers) {
		values = append(values, peer)
	}
	same := []any{map[string]any{"podSelector": map[string]any{"matchExpressions": []any{
		map[string]any{"key": nameLabel, "operator": "In", "values": values}}}}}
	ingress := []any{map[string]any{"from": same}}
	var open []any
	for _, v := range asList(w.shared["ports"]) {
		port := asMap(v)
		protocol := strings.ToUpper(asText(port["protocol"]))
		if protocol == "" {
			protocol = "TCP"
		}
		if asText(port["published"]) != "" {
			open = append(open, map[string]any{"port": number(port["target"]), "protocol": protocol})
		}
	}
	if len(open) > 0 {
		ingress = append(ingress, map[string]any{"ports": open})
	}
	spec := map[string]any{"podSelector": map[string]any{"matchLabels": w.labels()}, "policyTypes": []any{"Ingress"},
		"ingress": ingress}
	if isInternal {
		spec["policyTypes"] = []any{"Ingress", "Egress"}
		names := []any{map[string]any{"port": int64(53), "protocol": "UDP"},
			map[string]any{"port": int64(53), "protocol": "TCP"}}
		spec["egress"] = []any{map[string]any{"to": same}, map[string]any{"ports": names}}
	}
	meta := w.project.meta(w.name)
	meta["labels"] = w.labels()
	w.add(w.at("networks"), map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": meta, "spec": spec})
}
