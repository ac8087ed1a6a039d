package compose

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// workload is the conversion of a service or job.
type workload struct {
	*project
	attributes
	name        string
	kind        string
	pod         map[string]any
	context     map[string]any // security context of the pod
	annotations map[string]any // of the pod
	meta        map[string]any // of the controller
	spec        map[string]any // of the controller
	volumes     []any
	ports       []any // of the Kubernetes Service
	aliases     []string
	shared      map[string]any // attributes of the service that its hooks inherit
	headless    bool
}

// convert adds the objects of a service or job, and lists the attributes without a counterpart.
func (w *workload) convert() {
	w.kind, w.pod, w.context, w.spec = "Deployment", map[string]any{}, map[string]any{}, map[string]any{}
	w.annotations, w.meta = map[string]any{}, w.project.meta(w.name)
	w.meta["labels"] = w.labels()
	w.shared = maps.Clone(w.fields)
	w.drop("profiles", "extends")
	if w.fields["provider"] != nil {
		w.attributes.reportRest()
		return
	}
	for i, hook := range w.items("pre_start") {
		w.initContainer(i, &hook)
	}
	ports := w.publish() // before the container, whose probes may not name them
	container := w.container(&w.attributes, w.name)
	if len(ports) > 0 {
		container["ports"] = ports
	}
	for _, name := range []string{"tty", "stdin_open"} {
		if w.is(name) {
			container[map[string]string{"tty": "tty", "stdin_open": "stdin"}[name]] = true
		}
	}
	w.probes(container)
	w.hooks(container)
	w.shareWithNode()
	w.dns()
	w.podContext()
	w.joinNetworks()
	triggers := w.below("triggers")
	if w.path[0] == "services" {
		w.deploy(container)
	}
	w.attributes.reportRest()
	w.pod["containers"] = []any{container}
	if len(w.volumes) > 0 {
		w.pod["volumes"] = w.volumes
	}
	if len(w.context) > 0 {
		w.pod["securityContext"] = w.context
	}
	if w.path[0] == "jobs" {
		w.schedule(&triggers)
	} else {
		w.controller()
	}
	w.services()
	w.policy()
}

func (w *workload) labels() map[string]any { return map[string]any{nameLabel: w.name} }

// template returns the template of the pods.
func (w *workload) template() map[string]any {
	meta := map[string]any{"labels": w.labels()}
	if len(w.annotations) > 0 {
		meta["annotations"] = w.annotations
	}
	return map[string]any{"metadata": meta, "spec": w.pod}
}

// controller adds the object that runs the pods of a service.
func (w *workload) controller() {
	w.spec["template"] = w.template()
	version := "batch/v1"
	if w.kind != "Job" {
		version = "apps/v1"
		w.spec["selector"] = map[string]any{"matchLabels": w.labels()}
	}
	w.add(w.path, map[string]any{"apiVersion": version, "kind": w.kind, "metadata": w.meta, "spec": w.spec})
}

// services adds the Services of a service: one for its name, and one for each alias.
func (w *workload) services() {
	if len(w.ports) == 0 {
		return
	}
	for _, name := range append([]string{w.name}, w.aliases...) {
		meta := w.project.meta(name)
		meta["labels"] = w.labels()
		spec := map[string]any{"type": "ClusterIP", "selector": w.labels(), "ports": w.ports}
		if w.headless {
			spec["clusterIP"] = "None"
		}
		w.add(w.path, map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})
	}
}

// initContainer adds the init container of a pre_start hook. The loader has added what the hook inherits.
func (w *workload) initContainer(i int, a *attributes) {
	own := map[string]any{}
	for name, v := range a.fields {
		if name == "volumes" || isOfContainer(name) || !reflect.DeepEqual(v, w.shared[name]) {
			own[name] = v
		}
	}
	a.fields = own
	if a.fields["labels"] != nil {
		a.refuse("labels", "%s", reason("annotations"))
	}
	container := w.container(a, w.name+"-pre-start-"+strconv.Itoa(i))
	for _, name := range podAttributes {
		if v, ok := a.fields[name]; ok && !hasNoEffect(name, v) {
			a.refuse(name, "it is that of the whole pod, and the service does not have it")
		}
	}
	a.reportRest()
	list, _ := w.pod["initContainers"].([]any)
	w.pod["initContainers"] = append(list, container)
}

// podAttributes are attributes that all containers of a pod share.
var podAttributes = []string{"dns", "dns_opt", "dns_search", "extra_hosts", "group_add", "hostname", "network_mode",
	"networks", "platform", "stop_grace_period", "sysctls", "label_file"}

// isOfContainer reports whether each container of a pod has an attribute of its own, which a hook inherits.
func isOfContainer(name string) bool {
	return slices.Contains([]string{"cap_add", "cap_drop", "command", "configs", "cpu_count", "cpu_period", "cpu_quota",
		"cpus", "entrypoint", "env_file", "environment", "image", "mem_limit", "mem_reservation", "privileged",
		"pull_policy", "read_only", "secrets", "security_opt", "shm_size", "tmpfs", "user", "working_dir"}, name)
}

// shareWithNode converts the namespaces that the pod shares with its node.
func (w *workload) shareWithNode() {
	for name, field := range map[string]string{"network_mode": "hostNetwork", "pid": "hostPID", "ipc": "hostIPC"} {
		if w.fields[name] == "host" {
			w.drop(name)
			w.pod[field] = true
		}
	}
	if mode := asText(w.fields["network_mode"]); mode == "bridge" || mode == "default" {
		w.drop("network_mode")
	}
	if w.fields["userns_mode"] == "host" { // as all pods without hostUsers
		w.drop("userns_mode")
	}
}

// podContext converts what applies to all containers of the pod.
func (w *workload) podContext() {
	var sysctls, groups []any
	for name, v := range entries(pairs(w.take("sysctls"))) {
		sysctls = append(sysctls, map[string]any{"name": name, "value": asText(v)})
	}
	if len(sysctls) > 0 {
		w.context["sysctls"] = sysctls
	}
	for _, g := range asList(w.take("group_add")) {
		id, err := strconv.ParseInt(asText(g), 10, 32)
		if err != nil {
			w.attributes.report("group_add", "Kubernetes needs a number instead of %q", asText(g))
			continue
		}
		groups = append(groups, id)
	}
	if len(groups) > 0 {
		w.context["supplementalGroups"] = groups
	}
	if v := w.take("stop_grace_period"); v != nil {
		w.pod["terminationGracePeriodSeconds"] = seconds(v)
	}
	if os, rest, hasArch := strings.Cut(w.text("platform"), "/"); os != "" {
		arch, variant, _ := strings.Cut(rest, "/")
		w.selectNodes("kubernetes.io/os", os)
		if hasArch {
			w.selectNodes("kubernetes.io/arch", arch)
		}
		if variant != "" {
			w.attributes.report("platform", "nodes have no label for the variant %s", variant)
		}
	}
	for _, path := range asList(w.take("label_file")) {
		labels, err := w.readVariables(asText(path), "")
		if err != nil {
			w.attributes.report("label_file", "%v", err)
		}
		for name, v := range labels {
			w.annotations[name] = v
		}
	}
	for _, field := range []string{"labels", "annotations"} {
		for name, v := range pairs(w.take(field)) {
			w.annotations[name] = asText(v)
		}
	}
}

// selectNodes restricts the pods to nodes with a label.
func (w *workload) selectNodes(label, value string) {
	selector, _ := w.pod["nodeSelector"].(map[string]any)
	if selector == nil {
		selector = map[string]any{}
		w.pod["nodeSelector"] = selector
	}
	selector[label] = value
}
