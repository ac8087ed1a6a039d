package convert

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// storage converts volumes, configs and secrets.
func (s *service) storage() {
	for i, v := range asList(s.take("volumes")) {
		all := attributes{p: s.p, path: s.path, fields: map[string]any{"volumes": v}}
		volume := all.below("volumes")
		s.volume(i, &volume)
	}
	for i, v := range asList(s.take("tmpfs")) {
		target, options, hasOptions := strings.Cut(asText(v), ":")
		if hasOptions {
			s.attributes.report("tmpfs", "the options %q have no counterpart in Kubernetes", options)
		}
		s.mount(fmt.Sprintf("tmpfs-%d", i), target, map[string]any{"emptyDir": map[string]any{"medium": "Memory"}})
	}
	if size := number(s.take("shm_size")); size > 0 {
		s.mount("shm", "/dev/shm", map[string]any{"emptyDir": map[string]any{"medium": "Memory",
			"sizeLimit": fmt.Sprint(size)}})
	}
	for _, section := range []string{"configs", "secrets"} {
		for i, v := range asList(s.take(section)) {
			all := attributes{p: s.p, path: s.path, fields: map[string]any{section: v}}
			file := all.below(section)
			s.file(section, i, &file)
		}
	}
}

// volume converts a mount of a volume.
func (s *service) volume(i int, v *attributes) {
	source, target := asText(v.take("source")), asText(v.take("target"))
	var from map[string]any
	name := fmt.Sprintf("volume-%d", i)
	switch kind := v.take("type"); {
	case kind == "volume" && source != "":
		from = map[string]any{"persistentVolumeClaim": map[string]any{"claimName": toLabel(source)}}
	case kind == "volume":
		from = map[string]any{"emptyDir": map[string]any{}}
	case kind == "tmpfs":
		options := v.below("tmpfs")
		memory := map[string]any{"medium": "Memory"}
		if size := number(options.take("size")); size > 0 {
			memory["sizeLimit"] = fmt.Sprint(size)
		}
		options.reportRest()
		from = map[string]any{"emptyDir": memory}
	case kind == "bind" && s.HostPaths:
		from = map[string]any{"hostPath": map[string]any{"path": source}}
	case kind == "bind":
		s.attributes.report("volumes", "%s is a path of this machine; use -host-paths to mount it from the nodes",
			source)
		return
	default:
		s.attributes.report("volumes", "a mount of type %v has no counterpart in Kubernetes", kind)
		return
	}
	v.drop("bind")
	options := v.below("volume")
	subpath := options.take("subpath")
	options.drop("labels")
	options.reportRest()
	m := s.mount(name, target, from)
	if subpath != nil {
		m["subPath"] = subpath
	}
	if v.take("read_only") == true {
		m["readOnly"] = true
	}
	v.reportRest()
}

// mount adds a volume and its mount, which is returned.
func (s *service) mount(name, target string, source map[string]any) map[string]any {
	source["name"] = name
	s.volumes = append(s.volumes, source)
	m := map[string]any{"name": name, "mountPath": target}
	s.mounts = append(s.mounts, m)
	return m
}

// file converts a mount of a config or secret.
func (s *service) file(section string, i int, f *attributes) {
	source, target := asText(f.take("source")), asText(f.take("target"))
	folder, from := "/", map[string]any{"configMap": map[string]any{"name": toLabel(source)}}
	if section == "secrets" {
		folder, from = "/run/secrets", map[string]any{"secret": map[string]any{"secretName": toLabel(source)}}
	}
	if target == "" {
		target = source
	}
	if !path.IsAbs(target) {
		target = path.Join(folder, target)
	}
	f.reportRest()
	m := s.mount(fmt.Sprintf("%s-%d", strings.TrimSuffix(section, "s"), i), target, from)
	m["subPath"], m["readOnly"] = fileKey, true
}

// probes converts the health check to a readiness and a liveness probe.
func (s *service) probes() {
	check := s.below("healthcheck")
	test := asList(check.take("test"))
	if check.take("disable") == true || len(test) == 0 || asText(test[0]) == "NONE" {
		check.reportRest()
		return
	}
	command := test[1:]
	if asText(test[0]) == "CMD-SHELL" {
		command = append([]any{"/bin/sh", "-c"}, command...)
	}
	probe := map[string]any{"exec": map[string]any{"command": command}, "periodSeconds": int64(30),
		"timeoutSeconds": int64(30), "failureThreshold": int64(3)} // the defaults of Compose
	for from, to := range map[string]string{"interval": "periodSeconds", "timeout": "timeoutSeconds",
		"start_period": "initialDelaySeconds"} {
		if v := check.take(from); v != nil {
			probe[to] = seconds(v)
		}
	}
	if retries := number(check.take("retries")); retries > 0 {
		probe["failureThreshold"] = retries
	}
	check.reportRest()
	s.container["readinessProbe"], s.container["livenessProbe"] = probe, probe
}

// deploy converts how the service is deployed.
func (s *service) deploy() {
	d := s.below("deploy")
	if v := s.take("scale"); v != nil {
		s.replicas = number(v)
	}
	if v := d.take("replicas"); v != nil {
		s.replicas = number(v)
	}
	switch d.fields["mode"] {
	case "global":
		s.kind = "DaemonSet"
		d.drop("mode")
	case "replicated", "":
		d.drop("mode")
	}
	if d.fields["endpoint_mode"] == "dnsrr" {
		s.headless = true
	}
	if mode := d.fields["endpoint_mode"]; mode == "dnsrr" || mode == "vip" {
		d.drop("endpoint_mode")
	}
	if restart := asText(s.fields["restart"]); slices.Contains([]string{"always", "unless-stopped"}, restart) {
		s.drop("restart")
	} else if restart != "" {
		s.drop("restart")
		s.attributes.report("restart", "a %s always restarts its containers, not %q", s.kind, restart)
	}
	policy := d.below("restart_policy")
	if condition := asText(policy.fields["condition"]); condition == "any" || condition == "" {
		policy.drop("condition")
	}
	policy.reportRest()
	placement := d.below("placement")
	selector := map[string]any{}
	for _, c := range asList(placement.take("constraints")) {
		name, value, ok := strings.Cut(asText(c), "==")
		label, isLabel := strings.CutPrefix(strings.TrimSpace(name), "node.labels.")
		if !ok || !isLabel {
			placement.report("constraints", "%q has no counterpart in Kubernetes", asText(c))
			continue
		}
		selector[label] = strings.TrimSpace(value)
	}
	if len(selector) > 0 {
		s.pod["nodeSelector"] = selector
	}
	placement.reportRest()
	s.deployResources(&d)
	d.reportRest()
}

// deployResources converts the limits and reservations of a deployment.
func (s *service) deployResources(d *attributes) {
	all := d.below("resources")
	for from, to := range map[string]string{"limits": "limits", "reservations": "requests"} {
		list := all.below(from)
		s.resource(to, "cpu", cpu(list.take("cpus")))
		s.resource(to, "memory", memory(list.take("memory")))
		list.reportRest()
	}
	all.reportRest()
}

// resources converts the limits that the service itself has.
func (s *service) resources() {
	s.resource("limits", "cpu", cpu(s.take("cpus")))
	s.resource("limits", "memory", memory(s.take("mem_limit")))
	s.resource("requests", "memory", memory(s.take("mem_reservation")))
}

// resource sets a resource unless it is set or the quantity is "".
func (s *service) resource(list, name, quantity string) {
	if quantity == "" {
		return
	}
	all, _ := s.container["resources"].(map[string]any)
	if all == nil {
		all = map[string]any{}
		s.container["resources"] = all
	}
	quantities, _ := all[list].(map[string]any)
	if quantities == nil {
		quantities = map[string]any{}
		all[list] = quantities
	}
	if quantities[name] == nil {
		quantities[name] = quantity
	}
}

// cpu returns a number of processors as a quantity.
func cpu(v any) string {
	var n float64
	if _, err := fmt.Sscan(asText(v), &n); err != nil || n <= 0 || n > 1<<20 {
		return ""
	}
	if n == math.Trunc(n) {
		return fmt.Sprint(int64(n))
	}
	return fmt.Sprintf("%dm", int64(math.Ceil(n*1000)))
}

// memory returns a number of bytes as a quantity.
func memory(v any) string {
	n := number(v)
	switch {
	case n <= 0:
		return ""
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMi", n>>20)
	default:
		return fmt.Sprint(n)
	}
}
