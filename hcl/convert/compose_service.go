package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// service is the conversion of a service of a Compose project.
type service struct {
	*project
	attributes
	name      string
	container map[string]any
	security  map[string]any // of the container
	pod       map[string]any
	podMeta   map[string]any
	mounts    []any
	volumes   []any
	ports     []any // of the Kubernetes Service
	aliases   []string
	replicas  int64
	kind      string
	headless  bool
}

// convert adds the objects of the service, and reports the attributes without a counterpart.
func (s *service) convert() {
	s.container, s.security, s.pod = map[string]any{"name": s.name}, map[string]any{}, map[string]any{}
	s.podMeta = map[string]any{"labels": s.labels()}
	s.kind, s.replicas = "Deployment", 1
	s.drop("profiles", "extends", "env_file", "label_file")
	if s.container["image"] = s.take("image"); s.container["image"] == nil {
		s.container["image"] = s.project.namespace + "-" + s.name
		s.attributes.report("image", "there is none: build and push %s", s.container["image"])
	}
	s.process()
	s.network()
	s.storage()
	s.permissions()
	s.probes()
	s.deploy()
	s.resources()
	s.reportRest()
	if len(s.mounts) > 0 {
		s.container["volumeMounts"] = s.mounts
	}
	if len(s.security) > 0 {
		s.container["securityContext"] = s.security
	}
	if len(s.volumes) > 0 {
		s.pod["volumes"] = s.volumes
	}
	s.pod["containers"] = []any{s.container}
	s.write()
}

func (s *service) labels() map[string]any { return map[string]any{nameLabel: s.name} }

// write adds the objects.
func (s *service) write() {
	meta := func(name string) map[string]any {
		m := s.meta(name)
		m["labels"] = s.labels()
		return m
	}
	spec := map[string]any{"selector": map[string]any{"matchLabels": s.labels()},
		"template": map[string]any{"metadata": s.podMeta, "spec": s.pod}}
	if s.kind == "Deployment" {
		spec["replicas"] = s.replicas
	}
	s.add(s.path, map[string]any{"apiVersion": "apps/v1", "kind": s.kind, "metadata": meta(s.name), "spec": spec})
	if len(s.ports) == 0 {
		return
	}
	for _, name := range slices.Compact(append([]string{s.name}, s.aliases...)) {
		spec := map[string]any{"type": "ClusterIP", "selector": s.labels(), "ports": s.ports}
		if s.headless {
			spec["clusterIP"] = "None"
		}
		s.add(s.path, map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": meta(name), "spec": spec})
	}
}

// process converts what the container runs.
func (s *service) process() {
	for from, to := range map[string]string{"entrypoint": "command", "command": "args"} {
		if list := asList(s.take(from)); len(list) > 0 {
			s.container[to] = list
		}
	}
	if dir := s.take("working_dir"); dir != nil {
		s.container["workingDir"] = dir
	}
	var env []any
	for name, v := range entries(s.take("environment")) {
		if v == nil {
			s.attributes.report("environment", "the variable %s has no value; set it, or use -env", name)
			continue
		}
		// Kubernetes replaces $(NAME), and $$ is a dollar sign.
		text := strings.ReplaceAll(asText(v), "$(", "$$(")
		env = append(env, map[string]any{"name": name, "value": text})
	}
	if len(env) > 0 {
		s.container["env"] = env
	}
	for from, to := range map[string]string{"tty": "tty", "stdin_open": "stdin"} {
		if s.take(from) == true {
			s.container[to] = true
		}
	}
	policies := map[string]string{"always": "Always", "never": "Never", "missing": "IfNotPresent",
		"if_not_present": "IfNotPresent"}
	if policy, ok := policies[asText(s.fields["pull_policy"])]; ok {
		s.drop("pull_policy")
		s.container["imagePullPolicy"] = policy
	}
	if v := s.take("stop_grace_period"); v != nil {
		s.pod["terminationGracePeriodSeconds"] = seconds(v)
	}
	notes := map[string]any{}
	for _, field := range []string{"labels", "annotations"} {
		for name, v := range entries(s.take(field)) {
			notes[name] = asText(v)
		}
	}
	if len(notes) > 0 {
		s.podMeta["annotations"] = notes
	}
}

// network converts ports, names and DNS.
func (s *service) network() {
	s.convertPorts()
	if s.fields["network_mode"] == "host" {
		s.drop("network_mode")
		s.pod["hostNetwork"] = true
	}
	for name := range entries(s.fields["networks"]) {
		all := attributes{p: s.p, path: append(slices.Clone(s.path), "networks"), fields: asMap(s.fields["networks"])}
		network := all.below(name)
		for _, alias := range asList(network.take("aliases")) {
			if label := toLabel(asText(alias)); label != s.name && !slices.Contains(s.aliases, label) {
				s.aliases = append(s.aliases, label)
			}
		}
		network.reportRest()
	}
	s.drop("networks")
	if v := s.take("hostname"); v != nil {
		s.pod["hostname"] = toLabel(asText(v))
	}
	hosts := map[string][]any{}
	for name, list := range entries(s.take("extra_hosts")) {
		for _, ip := range asList(list) {
			hosts[asText(ip)] = append(hosts[asText(ip)], name)
		}
	}
	var aliases []any
	for _, ip := range slices.Sorted(maps.Keys(hosts)) {
		if ip == "host-gateway" {
			s.attributes.report("extra_hosts", "host-gateway has no counterpart in Kubernetes")
			continue
		}
		aliases = append(aliases, map[string]any{"ip": ip, "hostnames": hosts[ip]})
	}
	if len(aliases) > 0 {
		s.pod["hostAliases"] = aliases
	}
	dns := map[string]any{}
	for from, to := range map[string]string{"dns": "nameservers", "dns_search": "searches"} {
		if list := asList(s.take(from)); len(list) > 0 {
			dns[to] = list
		}
	}
	var options []any
	for _, option := range asList(s.take("dns_opt")) {
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
		s.pod["dnsConfig"] = dns
	}
}

// convertPorts converts published and exposed ports. Other services use the port of the container, so the Service has
// that port too.
func (s *service) convertPorts() {
	known := map[string]bool{}
	var container []any
	add := func(protocol string, port, target int64) {
		if name := fmt.Sprintf("%s-%d", protocol, port); !known[name] && port > 0 && port < 1<<16 {
			known[name] = true
			s.ports = append(s.ports, map[string]any{"name": name, "port": port, "targetPort": target,
				"protocol": strings.ToUpper(protocol)})
		}
	}
	for i, v := range asList(s.take("ports")) {
		all := attributes{p: s.p, path: s.path, fields: map[string]any{"ports": v}}
		port := all.below("ports")
		target, protocol := number(port.take("target")), asText(port.take("protocol"))
		if protocol == "" {
			protocol = "tcp"
		}
		c := map[string]any{"containerPort": target, "protocol": strings.ToUpper(protocol)}
		published, err := strconv.ParseInt(asText(port.take("published")), 10, 32)
		switch mode := port.take("mode"); {
		case mode == "host" && err == nil:
			c["hostPort"] = published
		case err == nil && published != target:
			add(protocol, published, target)
		}
		add(protocol, target, target)
		if !slices.ContainsFunc(container, func(e any) bool {
			return asMap(e)["containerPort"] == target && asMap(e)["protocol"] == c["protocol"]
		}) {
			container = append(container, c)
		}
		port.drop("name")
		for _, name := range slices.Sorted(maps.Keys(port.fields)) {
			s.attributes.report("ports", "%s of port %d has no counterpart in Kubernetes", name, i+1)
		}
	}
	for _, v := range asList(s.take("expose")) {
		text, protocol, isNamed := strings.Cut(asText(v), "/")
		if !isNamed {
			protocol = "tcp"
		}
		port, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			s.attributes.report("expose", "%q is a range of ports", text)
			continue
		}
		add(protocol, port, port)
	}
	if len(container) > 0 {
		s.container["ports"] = container
	}
}

// permissions converts the user and what the container may do.
func (s *service) permissions() {
	if v := asText(s.fields["user"]); v != "" {
		user, group, hasGroup := strings.Cut(v, ":")
		uid, err := strconv.ParseInt(user, 10, 32)
		gid, groupErr := strconv.ParseInt(group, 10, 32)
		if err == nil && (!hasGroup || groupErr == nil) {
			s.drop("user")
			s.security["runAsUser"] = uid
			if hasGroup {
				s.security["runAsGroup"] = gid
			}
		} else {
			s.attributes.report("user", "Kubernetes needs numbers instead of %q", v)
			s.drop("user")
		}
	}
	capabilities := map[string]any{}
	for from, to := range map[string]string{"cap_add": "add", "cap_drop": "drop"} {
		if list := asList(s.take(from)); len(list) > 0 {
			capabilities[to] = list
		}
	}
	if len(capabilities) > 0 {
		s.security["capabilities"] = capabilities
	}
	for from, to := range map[string]string{"privileged": "privileged", "read_only": "readOnlyRootFilesystem"} {
		if s.take(from) == true {
			s.security[to] = true
		}
	}
	for from, to := range map[string]string{"pid": "hostPID", "ipc": "hostIPC"} {
		if s.fields[from] == "host" {
			s.drop(from)
			s.pod[to] = true
		}
	}
	context := map[string]any{}
	var sysctls []any
	for name, v := range entries(s.take("sysctls")) {
		sysctls = append(sysctls, map[string]any{"name": name, "value": asText(v)})
	}
	if len(sysctls) > 0 {
		context["sysctls"] = sysctls
	}
	var groups []any
	for _, g := range asList(s.take("group_add")) {
		id, err := strconv.ParseInt(asText(g), 10, 32)
		if err != nil {
			s.attributes.report("group_add", "Kubernetes needs a number instead of %q", asText(g))
			continue
		}
		groups = append(groups, id)
	}
	if len(groups) > 0 {
		context["supplementalGroups"] = groups
	}
	if len(context) > 0 {
		s.pod["securityContext"] = context
	}
}

// number returns a number of the project.
func number(v any) int64 {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			return n
		}
	}
	return 0
}

// seconds returns a duration in whole seconds, at least one.
func seconds(v any) int64 {
	d, err := time.ParseDuration(asText(v))
	if err != nil {
		return 1
	}
	return max(1, int64((d+time.Second-1)/time.Second))
}
