package block

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/hcl/config"
)

type workloadBlock struct {
	Name           string            `hcl:"name,optional" doc:"Name of the Deployment and of its other objects." default:"the block's label, with the key or index"`
	Namespace      string            `hcl:"namespace,optional" doc:"Namespace; it is created if it does not exist." default:"\"default\""`
	Replicas       *int              `hcl:"replicas,optional" doc:"Number of pods." default:"1"`
	Labels         map[string]string `hcl:"labels,optional" doc:"Labels of all objects of the block."`
	Annotations    map[string]string `hcl:"annotations,optional" doc:"Annotations of all objects of the block."`
	NodeSelector   map[string]string `hcl:"node_selector,optional" doc:"Labels that a node must have."`
	ServiceAccount string            `hcl:"service_account,optional" doc:"Service account of the pods." default:"\"default\""`
	HostNetwork    bool              `hcl:"host_network,optional" doc:"Whether the pods use the machine's network." default:"false"`
	Config         map[string]string `hcl:"config,optional" doc:"Files by name. They become a ConfigMap with the workload's name, which is also the volume config. A change replaces the pods."`
	Containers     []containerBlock  `hcl:"container,block" doc:"A container of the pods."`
	Init           []containerBlock  `hcl:"init_container,block" doc:"A container that must finish before the others start."`
	Volumes        []volumeBlock     `hcl:"volume,block" doc:"A directory that containers can mount, with exactly one source."`
	Service        *serviceBlock     `hcl:"service,block" doc:"One name and address for all pods."`
	Lifecycle      *lifecycleBlock   `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
}

type volumeBlock struct {
	Name      string `hcl:"name,label"`
	EmptyDir  bool   `hcl:"empty_dir,optional" doc:"An empty directory that is deleted with the pod." default:"false"`
	HostPath  string `hcl:"host_path,optional" doc:"A path of the machine."`
	ConfigMap string `hcl:"config_map,optional" doc:"Name of a ConfigMap."`
	Secret    string `hcl:"secret,optional" doc:"Name of a Secret."`
	Claim     string `hcl:"claim,optional" doc:"Name of a PersistentVolumeClaim."`
}

type serviceBlock struct {
	Type      string         `hcl:"type,optional" doc:"ClusterIP, NodePort or LoadBalancer." default:"\"ClusterIP\", or \"NodePort\" with node_ports"`
	Ports     map[string]int `hcl:"ports" doc:"Names of containers' ports to the service's own."`
	NodePorts map[string]int `hcl:"node_ports,optional" doc:"Names of ports to ports of every machine, from 30000 to 32767."`
	Headless  bool           `hcl:"headless,optional" doc:"A headless service: its name resolves to the pods' addresses." default:"false"`
}

func decodeWorkload(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw workloadBlock
	diags := x.decode(b.Body, x.Eval, &raw)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	ignored, more := raw.Lifecycle.decodeIgnored(workloadField(raw.Containers))
	if diags = append(diags, more...); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	w := config.Workload{
		Ignored: ignored,
		Address: x.fullAddress("workload." + b.Labels[0]), DependsOn: x.dependsOn,
		Name: orDefault(raw.Name, x.defaultName(b.Labels[0])), Namespace: orDefault(raw.Namespace, "default"),
		Replicas: valueOr(raw.Replicas, 1),
		Labels:   raw.Labels, Annotations: raw.Annotations, NodeSelector: raw.NodeSelector,
		ServiceAccount: raw.ServiceAccount, HostNetwork: raw.HostNetwork, Config: raw.Config,
		PreventDestroy: raw.Lifecycle.preventDestroy(), Source: sourceOf(b),
	}
	if errs := validation.IsDNS1123Label(w.Name); len(errs) > 0 {
		diags = append(diags, newError(labelRange(b, "name"), "Invalid workload name", "%q: %s.", w.Name, errs[0]))
	}
	if errs := validation.IsDNS1123Label(w.Namespace); len(errs) > 0 {
		diags = append(diags, newError(attributeRange(b, b.Body, "namespace"), "Invalid namespace", "%s.", errs[0]))
	}
	if w.Replicas < 0 {
		diags = append(diags, newError(attributeRange(b, b.Body, "replicas"), "Invalid replicas", "replicas must not "+
			"be negative."))
	}
	volumes := []string{}
	if len(w.Config) > 0 {
		volumes = append(volumes, "config")
	}
	for _, v := range raw.Volumes {
		volume := config.Volume(v)
		if n := countSources(volume); n != 1 {
			diags = append(diags, newError(attributeRange(b, b.Body, "volume"), "Invalid volume",
				"Volume %q has %d sources. Give it exactly one of empty_dir, host_path, config_map, secret and "+
					"claim.", v.Name, n))
		}
		if slices.Contains(volumes, v.Name) {
			diags = append(diags, newError(attributeRange(b, b.Body, "volume"), "Duplicate volume",
				"There is already a volume %q in this workload.", v.Name))
		}
		volumes = append(volumes, v.Name)
		w.Volumes = append(w.Volumes, volume)
	}
	if len(raw.Containers) == 0 {
		diags = append(diags, newError(b.DefRange.Ptr(), "No container",
			"A workload has at least one container \"NAME\" { image = … }."))
	}
	names := map[string]bool{}
	for i, list := range [][]containerBlock{raw.Init, raw.Containers} {
		for _, raw := range list {
			container, more := raw.decode(x, b, volumes)
			diags = append(diags, more...)
			container.Init = i == 0
			if names[container.Name] {
				diags = append(diags, newError(b.DefRange.Ptr(), "Duplicate container",
					"There is already a container %q in this workload.", container.Name))
			}
			names[container.Name] = true
			w.Containers = append(w.Containers, container)
		}
	}
	diags = append(diags, decodeService(b, raw.Service, &w)...)
	c.Workloads = append(c.Workloads, w)
	host := w.Name + "." + w.Namespace
	return cty.ObjectVal(
		map[string]cty.Value{
			"name":      cty.StringVal(w.Name),
			"namespace": cty.StringVal(w.Namespace),
			"host":      cty.StringVal(host),
		},
	), diags
}

func countSources(v config.Volume) (n int) {
	for _, set := range []bool{v.EmptyDir, v.HostPath != "", v.ConfigMap != "", v.Secret != "", v.Claim != ""} {
		if set {
			n++
		}
	}
	return n
}

var serviceTypes = []string{"ClusterIP", "NodePort", "LoadBalancer"}

func decodeService(b *hcl.Block, raw *serviceBlock, w *config.Workload) (diags hcl.Diagnostics) {
	if raw == nil {
		return nil
	}
	s := &config.Service{
		Type:      orDefault(raw.Type, "ClusterIP"),
		Ports:     raw.Ports,
		NodePorts: raw.NodePorts,
		Headless:  raw.Headless,
	}
	if raw.Type == "" && len(s.NodePorts) > 0 {
		s.Type = "NodePort"
	}
	w.Service = s
	if !slices.Contains(serviceTypes, s.Type) {
		diags = append(diags, newError(nestedRange(b, "service", "type"), "Unknown type of service",
			"%q is not known.%s The types are %s.", s.Type, Suggest(s.Type, serviceTypes),
			strings.Join(serviceTypes, ", ")))
	}
	if len(s.Ports) == 0 {
		diags = append(diags, newError(nestedRange(b, "service", "ports"), "No ports",
			"A service has at least one port, as in ports = { http = 80 }."))
	}
	var known []string
	for _, c := range w.Containers {
		for name := range c.Ports {
			known = append(known, name)
		}
	}
	for name, port := range s.Ports {
		if !slices.Contains(known, name) {
			diags = append(diags, newError(nestedRange(b, "service", "ports"), "Unknown port",
				"No container of this workload has a port named %q.%s", name, Suggest(name, known)))
		}
		if len(validation.IsValidPortNum(port)) > 0 {
			diags = append(diags,
				newError(nestedRange(b, "service", "ports"), "Invalid port", "%d is not a port.", port))
		}
	}
	for name, port := range s.NodePorts {
		if _, ok := s.Ports[name]; !ok {
			diags = append(diags,
				newError(nestedRange(b, "service", "node_ports"), "Unknown port", "ports has no %q.", name))
		}
		if s.Type == "ClusterIP" || port < 30000 || port > 32767 {
			diags = append(diags, newError(nestedRange(b, "service", "node_ports"), "Invalid node port",
				"Node ports are from 30000 to 32767, in a service of type NodePort or LoadBalancer."))
		}
	}
	return diags
}
