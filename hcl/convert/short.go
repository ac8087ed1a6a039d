package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/hcl/config"
)

// nameLabel is the label of all objects of a workload block.
const nameLabel = "app.kubernetes.io/name"

var workloadLabel = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// shortForm is a workload block that declares some of the objects.
type shortForm struct {
	members []int // indices of the objects
	text    string
}

// shortForms are workload blocks by the index of their first object.
type shortForms map[int]*shortForm

// isMember reports whether a workload block declares an object.
func (s shortForms) isMember(object int) bool {
	for _, form := range s {
		if slices.Contains(form.members, object) {
			return true
		}
	}
	return false
}

// newShortForms returns the workload blocks whose objects are exactly among the given ones.
func newShortForms(objects []Object, render Renderer) shortForms {
	forms := shortForms{}
	if render == nil {
		return forms
	}
	index := map[string]int{}
	for i, o := range objects {
		index[identity(o)] = i
	}
	used := map[string]bool{}
	for _, o := range objects {
		if o.Content["kind"] != "Deployment" || o.Content["apiVersion"] != "apps/v1" ||
			!workloadLabel.MatchString(o.metadata("name")) || used[o.metadata("name")] {
			continue
		}
		w, ok := workloadOf(o, func(kind string) map[string]any {
			i, ok := index[fmt.Sprintf("v1 %s %s/%s", kind, o.metadata("namespace"), o.metadata("name"))]
			if !ok {
				return nil
			}
			return objects[i].Content
		})
		if !ok {
			continue
		}
		text := workloadText(w)
		members := findMembers(text, render, index, objects)
		if members == nil {
			continue
		}
		used[w.Name] = true
		forms[slices.Min(members)] = &shortForm{members: members, text: text}
	}
	return forms
}

// findMembers returns the indices of the objects that a workload block declares. It returns nil if the block is not
// valid, or if an object is missing or differs.
func findMembers(text string, render Renderer, index map[string]int, objects []Object) (members []int) {
	rendered, err := render(text)
	if err != nil {
		return nil
	}
	for _, r := range rendered {
		i, ok := index[identity(Object{Content: r})]
		if !ok || !isEqual(r, objects[i].Content) {
			return nil
		}
		members = append(members, i)
	}
	return members
}

// isEqual reports whether two objects have the same JSON.
func isEqual(a, b map[string]any) bool {
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && string(left) == string(right) // keys are sorted
}

// retype converts an object to a typed one.
func retype(from, into any) bool {
	text, err := json.Marshal(from)
	return err == nil && json.Unmarshal(text, into) == nil
}

// workloadOf returns the workload that may have a Deployment as its object. The caller compares what it renders to.
// beside returns the object of another kind with the Deployment's name, or nil.
func workloadOf(o Object, beside func(kind string) map[string]any) (w config.Workload, ok bool) {
	var d appsv1.Deployment
	if !retype(o.Content, &d) || d.Spec.Replicas == nil || len(d.Spec.Template.Spec.Containers) == 0 {
		return w, false
	}
	pod := d.Spec.Template.Spec
	w = config.Workload{Name: d.Name, Namespace: d.Namespace, Replicas: int(*d.Spec.Replicas),
		Labels: maps.Clone(d.Labels), Annotations: maps.Clone(d.Spec.Template.Annotations),
		NodeSelector: pod.NodeSelector, ServiceAccount: pod.ServiceAccountName, HostNetwork: pod.HostNetwork}
	delete(w.Labels, nameLabel)
	if data := beside("ConfigMap"); data != nil && len(pod.Volumes) > 0 && pod.Volumes[0].Name == "config" {
		var m corev1.ConfigMap
		if !retype(data, &m) {
			return w, false
		}
		w.Config = m.Data
		maps.DeleteFunc(w.Annotations, func(k, _ string) bool { return k == "clusterctl/config-digest" })
		pod.Volumes = pod.Volumes[1:]
	}
	for _, v := range pod.Volumes {
		w.Volumes = append(w.Volumes, volumeOf(v))
	}
	for _, c := range pod.InitContainers {
		short := containerOf(c)
		short.Init = true
		w.Containers = append(w.Containers, short)
	}
	for _, c := range pod.Containers {
		w.Containers = append(w.Containers, containerOf(c))
	}
	if content := beside("Service"); content != nil {
		var s corev1.Service
		if !retype(content, &s) || len(s.Spec.Ports) == 0 {
			return w, true // its own block
		}
		service := serviceOf(s)
		for name := range service.Ports {
			if !slices.ContainsFunc(w.Containers, func(c config.Container) bool { return c.Ports[name] != 0 }) {
				return w, true
			}
		}
		w.Service = service
	}
	return w, true
}

func volumeOf(v corev1.Volume) config.Volume {
	out := config.Volume{Name: v.Name}
	switch {
	case v.HostPath != nil:
		out.HostPath = v.HostPath.Path
	case v.ConfigMap != nil:
		out.ConfigMap = v.ConfigMap.Name
	case v.Secret != nil:
		out.Secret = v.Secret.SecretName
	case v.PersistentVolumeClaim != nil:
		out.Claim = v.PersistentVolumeClaim.ClaimName
	default:
		out.EmptyDir = true
	}
	return out
}

func containerOf(c corev1.Container) config.Container {
	out := config.Container{Name: c.Name, Image: c.Image, PullPolicy: string(c.ImagePullPolicy), Command: c.Command,
		Args: c.Args, WorkingDir: c.WorkingDir, Env: map[string]string{}, Ports: map[string]int{},
		Mounts: map[string]string{}, Requests: quantities(c.Resources.Requests), Limits: quantities(c.Resources.Limits),
		Readiness: probeOf(c.ReadinessProbe), Liveness: probeOf(c.LivenessProbe), Startup: probeOf(c.StartupProbe)}
	for _, e := range c.Env {
		out.Env[e.Name] = e.Value
	}
	for _, p := range c.Ports {
		out.Ports[p.Name] = int(p.ContainerPort)
	}
	for _, m := range c.VolumeMounts {
		out.Mounts[m.MountPath] = m.Name
	}
	return out
}

func quantities(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range list {
		out[string(name)] = q.String()
	}
	return out
}

func probeOf(p *corev1.Probe) *config.Probe {
	if p == nil {
		return nil
	}
	out := &config.Probe{Delay: int(p.InitialDelaySeconds), Period: int(p.PeriodSeconds),
		Timeout: int(p.TimeoutSeconds), Failures: int(p.FailureThreshold)}
	switch {
	case p.HTTPGet != nil:
		out.HTTP, out.Port = p.HTTPGet.Path, p.HTTPGet.Port.String()
	case p.TCPSocket != nil:
		out.TCP, out.Port = true, p.TCPSocket.Port.String()
	case p.Exec != nil:
		out.Command = p.Exec.Command
	}
	return out
}

func serviceOf(s corev1.Service) *config.Service {
	out := &config.Service{Type: string(s.Spec.Type), Ports: map[string]int{}, NodePorts: map[string]int{},
		Headless: s.Spec.ClusterIP == corev1.ClusterIPNone}
	for _, p := range s.Spec.Ports {
		out.Ports[p.Name] = int(p.Port)
		if p.NodePort != 0 {
			out.NodePorts[p.Name] = int(p.NodePort)
		}
	}
	return out
}

// attribute writes an attribute, unless the value is that of an attribute that is not written.
func (w *writer) attribute(name string, v any) {
	if value := reflect.ValueOf(v); value.IsZero() || value.Kind() == reflect.Map && value.Len() == 0 {
		return
	}
	w.text.WriteString(name + " = ")
	w.value(plain(v), false)
	w.text.WriteString("\n")
}

// plain returns a value with the types that value writes.
func plain(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case []string:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = e
		}
		return list
	case map[string]string:
		return plainMap(v)
	case map[string]int:
		return plainMap(v)
	}
	return v
}

func plainMap[V any](from map[string]V) map[string]any {
	out := map[string]any{}
	for k, v := range from {
		out[k] = plain(v)
	}
	return out
}

// workloadText returns the text of a workload block.
func workloadText(s config.Workload) string {
	w := &writer{}
	fmt.Fprintf(&w.text, "workload %s {\n", quote(s.Name))
	if s.Namespace != "default" {
		w.attribute("namespace", s.Namespace)
	}
	if s.Replicas != 1 {
		fmt.Fprintf(&w.text, "replicas = %d\n", s.Replicas)
	}
	w.attribute("labels", s.Labels)
	w.attribute("annotations", s.Annotations)
	w.attribute("node_selector", s.NodeSelector)
	w.attribute("service_account", s.ServiceAccount)
	w.attribute("host_network", s.HostNetwork)
	w.attribute("config", s.Config)
	for _, c := range s.Containers {
		w.container(c)
	}
	for _, v := range s.Volumes {
		fmt.Fprintf(&w.text, "\nvolume %s {\n", quote(v.Name))
		w.attribute("empty_dir", v.EmptyDir)
		w.attribute("host_path", v.HostPath)
		w.attribute("config_map", v.ConfigMap)
		w.attribute("secret", v.Secret)
		w.attribute("claim", v.Claim)
		w.text.WriteString("}\n")
	}
	if v := s.Service; v != nil {
		w.text.WriteString("\nservice {\n")
		if v.Type != "ClusterIP" && (v.Type != "NodePort" || len(v.NodePorts) == 0) {
			w.attribute("type", v.Type)
		}
		w.attribute("ports", v.Ports)
		w.attribute("node_ports", v.NodePorts)
		w.attribute("headless", v.Headless)
		w.text.WriteString("}\n")
	}
	w.text.WriteString("}\n")
	return strings.Replace(w.text.String(), "{\n\n", "{\n", 1)
}

func (w *writer) container(c config.Container) {
	kind := "container"
	if c.Init {
		kind = "init_container"
	}
	fmt.Fprintf(&w.text, "\n%s %s {\n", kind, quote(c.Name))
	w.attribute("image", c.Image)
	w.attribute("pull_policy", c.PullPolicy)
	w.attribute("command", c.Command)
	w.attribute("args", c.Args)
	w.attribute("working_dir", c.WorkingDir)
	w.attribute("env", c.Env)
	w.attribute("ports", c.Ports)
	w.attribute("requests", c.Requests)
	w.attribute("limits", c.Limits)
	w.attribute("mounts", c.Mounts)
	for _, p := range []struct {
		name  string
		probe *config.Probe
	}{{"readiness", c.Readiness}, {"liveness", c.Liveness}, {"startup", c.Startup}} {
		if p.probe != nil {
			w.attribute(p.name, probeFields(*p.probe))
		}
	}
	w.text.WriteString("}\n")
}

func probeFields(p config.Probe) map[string]any {
	out := map[string]any{}
	set := func(name string, v any) {
		if !reflect.ValueOf(v).IsZero() {
			out[name] = plain(v)
		}
	}
	set("http", p.HTTP)
	set("tcp", p.TCP)
	set("command", p.Command)
	set("port", p.Port)
	set("delay", p.Delay)
	set("period", p.Period)
	set("timeout", p.Timeout)
	set("failures", p.Failures)
	return out
}
