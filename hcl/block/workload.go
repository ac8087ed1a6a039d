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
	Kind           string                `hcl:"kind,optional" doc:"Kind of the object that runs the pods: Deployment, StatefulSet, DaemonSet, Job or CronJob." default:"\"Deployment\""`
	Name           string                `hcl:"name,optional" doc:"Name of the object that runs the pods, and of its other objects." default:"the block's label, with the key or index"`
	Namespace      string                `hcl:"namespace,optional" doc:"Namespace; it is created if it does not exist." default:"\"default\""`
	Replicas       *int                  `hcl:"replicas,optional" doc:"Number of pods." default:"1; with autoscaling, the autoscaler's" kinds:"Deployment StatefulSet"`
	Labels         map[string]string     `hcl:"labels,optional" doc:"Labels of all objects of the block."`
	Annotations    map[string]string     `hcl:"annotations,optional" doc:"Annotations of the pods."`
	NodeSelector   map[string]string     `hcl:"node_selector,optional" doc:"Labels that a node must have."`
	ServiceAccount string                `hcl:"service_account,optional" doc:"Service account of the pods." default:"\"default\""`
	HostNetwork    bool                  `hcl:"host_network,optional" doc:"Whether the pods use the machine's network." default:"false"`
	Config         map[string]string     `hcl:"config,optional" doc:"Files by name. They become a ConfigMap with the workload's name, which is also the volume config. A change replaces the pods."`
	Secrets        map[string]string     `hcl:"secrets,optional" doc:"Secret texts by name. They become a Secret with the workload's name, which is also the volume secrets. Plans and states do not contain the texts. A change replaces the pods."`
	Strategy       string                `hcl:"strategy,optional" doc:"How pods are replaced: RollingUpdate; or Recreate, in a Deployment; or OnDelete, in a StatefulSet or DaemonSet." default:"\"RollingUpdate\"" kinds:"Deployment StatefulSet DaemonSet"`
	MaxUnavailable string                `hcl:"max_unavailable,optional" doc:"How many pods an update may make unavailable, a number or a percentage." default:"\"25%\"; 1 in a DaemonSet" kinds:"Deployment DaemonSet"`
	MaxSurge       string                `hcl:"max_surge,optional" doc:"How many pods an update may add, a number or a percentage." default:"\"25%\"; 0 in a DaemonSet" kinds:"Deployment DaemonSet"`
	MinReady       string                `hcl:"min_ready,optional" doc:"How long a new pod must be ready before it counts as available, as \"10s\"." default:"\"0s\"" kinds:"Deployment StatefulSet DaemonSet"`
	PodManagement  string                `hcl:"pod_management,optional" doc:"OrderedReady, which creates and deletes pods one after another, or Parallel." default:"\"OrderedReady\"" kinds:"StatefulSet"`
	ServiceName    string                `hcl:"service_name,optional" doc:"Headless Service of the namespace that gives each pod a name." default:"the block's service if it is headless; otherwise one named NAME-headless, which the block adds" kinds:"StatefulSet"`
	Schedule       string                `hcl:"schedule,optional" doc:"When Jobs are created, in the format of cron: minute, hour, day of the month, month, day of the week. Required in a CronJob." kinds:"CronJob"`
	TimeZone       string                `hcl:"time_zone,optional" doc:"Time zone of the schedule, as \"Europe/Berlin\"." default:"that of the controller manager" kinds:"CronJob"`
	Concurrency    string                `hcl:"concurrency,optional" doc:"What happens if the last Job is still running: Allow creates another one, Forbid skips it, Replace deletes the last one first." default:"\"Allow\"" kinds:"CronJob"`
	Successful     *int                  `hcl:"successful_history,optional" doc:"How many succeeded Jobs are kept." default:"3" kinds:"CronJob"`
	Failed         *int                  `hcl:"failed_history,optional" doc:"How many failed Jobs are kept." default:"1" kinds:"CronJob"`
	Suspend        bool                  `hcl:"suspend,optional" doc:"Whether no more Jobs are created." default:"false" kinds:"CronJob"`
	StartDeadline  string                `hcl:"starting_deadline,optional" doc:"How late a Job may still be created, as \"5m\"." default:"any time" kinds:"CronJob"`
	Completions    *int                  `hcl:"completions,optional" doc:"How many pods must succeed." default:"1" kinds:"Job CronJob"`
	Parallelism    *int                  `hcl:"parallelism,optional" doc:"How many pods run at the same time." default:"1" kinds:"Job CronJob"`
	BackoffLimit   *int                  `hcl:"backoff_limit,optional" doc:"After how many failed pods the Job fails." default:"6" kinds:"Job CronJob"`
	ActiveDeadline string                `hcl:"active_deadline,optional" doc:"How long the Job may take, as \"1h\"." default:"any time" kinds:"Job CronJob"`
	TTL            string                `hcl:"ttl_after_finished,optional" doc:"When a finished Job is deleted, as \"24h\". The next apply creates a deleted Job again." default:"never" kinds:"Job CronJob"`
	Indexed        bool                  `hcl:"indexed,optional" doc:"Whether each pod gets a number, in the environment variable JOB_COMPLETION_INDEX. It needs completions." default:"false" kinds:"Job CronJob"`
	RestartPolicy  string                `hcl:"restart_policy,optional" doc:"OnFailure, which restarts failed containers, or Never, which creates another pod." default:"\"OnFailure\"" kinds:"Job CronJob"`
	Containers     []containerBlock      `hcl:"container,block" doc:"A container of the pods."`
	Init           []containerBlock      `hcl:"init_container,block" doc:"A container that must finish before the others start."`
	Volumes        []volumeBlock         `hcl:"volume,block" doc:"A directory that containers can mount, with exactly one source."`
	Storage        []claimBlock          `hcl:"storage,block" doc:"A PersistentVolumeClaim named after the workload and the label, which is also a volume with the label's name. Removing the block deletes the claim." kinds:"Deployment DaemonSet Job CronJob"`
	Claims         []claimBlock          `hcl:"claim,block" doc:"A PersistentVolumeClaim for each pod, which is also a volume with the label's name. It stays if the pod is deleted." kinds:"StatefulSet"`
	Service        *serviceBlock         `hcl:"service,block" doc:"One name and address for all pods."`
	Ingress        *workloadIngressBlock `hcl:"ingress,block" doc:"HTTP access to the service from outside." kinds:"Deployment StatefulSet DaemonSet"`
	Autoscaling    *autoscalingBlock     `hcl:"autoscaling,block" doc:"A HorizontalPodAutoscaler, which sets the number of pods." kinds:"Deployment StatefulSet"`
	Budget         *budgetBlock          `hcl:"budget,block" doc:"A PodDisruptionBudget, which limits evictions. It has one attribute." kinds:"Deployment StatefulSet"`
	NetworkPolicy  *policyBlock          `hcl:"network_policy,block" doc:"A NetworkPolicy for the pods. Traffic that no rule allows is dropped."`
	Lifecycle      *lifecycleBlock       `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
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
	kind := orDefault(raw.Kind, config.KindDeployment)
	if !slices.Contains(config.WorkloadKinds, kind) {
		return cty.DynamicVal, append(diags, newError(attributeRange(b, b.Body, "kind"), "Unknown kind of workload",
			"%q is not known.%s The kinds are %s.", kind, Suggest(kind, config.WorkloadKinds),
			joinWords(config.WorkloadKinds)))
	}
	w := config.Workload{
		Kind: kind, Ignored: ignored,
		Address: x.fullAddress("workload." + b.Labels[0]), DependsOn: x.dependsOn,
		Name: orDefault(raw.Name, x.defaultName(b.Labels[0])), Namespace: orDefault(raw.Namespace, "default"),
		Replicas: valueOr(raw.Replicas, 1),
		Labels:   raw.Labels, Annotations: raw.Annotations, NodeSelector: raw.NodeSelector,
		ServiceAccount: raw.ServiceAccount, HostNetwork: raw.HostNetwork, Config: raw.Config,
		Secrets:        raw.Secrets,
		PreventDestroy: raw.Lifecycle.preventDestroy(), Source: sourceOf(b),
	}
	if errs := validation.IsDNS1123Label(w.Name); len(errs) > 0 {
		diags = append(diags, newError(labelRange(b, "name"), "Invalid workload name", "%q: %s.", w.Name, errs[0]))
	}
	if errs := validation.IsDNS1123Label(w.Namespace); len(errs) > 0 {
		diags = append(diags, newError(attributeRange(b, b.Body, "namespace"), "Invalid namespace", "%s.", errs[0]))
	}
	volumes, more := decodeVolumes(b, &raw, &w)
	diags = append(diags, more...)
	if len(raw.Containers) == 0 {
		diags = append(diags, newError(b.DefRange.Ptr(), "No container",
			"A workload has at least one container \"NAME\" { image = … }."))
	}
	names := map[string]bool{}
	for i, list := range [][]containerBlock{raw.Init, raw.Containers} {
		for _, raw := range list {
			container, more := raw.decode(x, b, volumes, w.Secrets)
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
	diags = append(diags, decodeForm(b, &raw, &w)...)
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

// decodeVolumes decodes the volumes of a workload, and returns their names.
func decodeVolumes(b *hcl.Block, raw *workloadBlock, w *config.Workload) (volumes []string, diags hcl.Diagnostics) {
	if len(w.Config) > 0 {
		volumes = append(volumes, "config")
	}
	if len(w.Secrets) > 0 {
		volumes = append(volumes, "secrets")
	}
	add := func(at *hcl.Range, name string) {
		if slices.Contains(volumes, name) {
			diags = append(diags, newError(at, "Duplicate volume", "There is already a volume %q in this workload.",
				name))
		}
		volumes = append(volumes, name)
	}
	for _, v := range raw.Volumes {
		volume := config.Volume(v)
		if n := countSources(volume); n != 1 {
			diags = append(diags, newError(attributeRange(b, b.Body, "volume"), "Invalid volume",
				"Volume %q has %d sources. Give it exactly one of empty_dir, host_path, config_map, secret and "+
					"claim.", v.Name, n))
		}
		add(attributeRange(b, b.Body, "volume"), v.Name)
		w.Volumes = append(w.Volumes, volume)
	}
	for _, s := range []struct {
		typ  string
		raw  []claimBlock
		into *[]config.Claim
	}{{"storage", raw.Storage, &w.Storage}, {"claim", raw.Claims, &w.StatefulSet.Claims}} {
		for _, raw := range s.raw {
			claim, more := raw.decode(b, s.typ)
			diags = append(diags, more...)
			add(labelledRange(b, s.typ, raw.Name, ""), raw.Name)
			*s.into = append(*s.into, claim)
		}
	}
	return volumes, diags
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
	var names []string
	for _, c := range w.Containers {
		for name := range c.Ports {
			names = append(names, name)
		}
	}
	for name, port := range s.Ports {
		if !slices.Contains(names, name) {
			diags = append(diags, newError(nestedRange(b, "service", "ports"), "Unknown port",
				"No container of this workload has a port named %q.%s", name, Suggest(name, names)))
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
