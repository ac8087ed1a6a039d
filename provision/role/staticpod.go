package role

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	hcl "clusterctl/hcl/config"
	"clusterctl/provision/bundle"
	"clusterctl/provision/host"
	"clusterctl/provision/step"
)

// component is a daemon of the control plane, which runs as a unit or as a static pod.
type component struct {
	service
	port int // port that serves health
	// port that serves health without TLS and authentication on the loopback address; 0 means that port does not need
	// credentials
	probed int
	http   bool   // port serves health without TLS
	live   string // path of the liveness check
	ready  string
	cpu    string
	memory string
	image  string   // name of an image in the bundle
	mounts []string // files and directories of the machine that it reads
	shares []string // directories of sockets that it connects to
	writes []string // directories that it writes to

	environment []corev1.EnvVar // only for the static pod; systemd's environment does not apply to pods
}

func (c component) url() (url string, as host.Client) {
	switch {
	case c.http:
		return fmt.Sprintf("http://127.0.0.1:%d%s", c.port, c.ready), as
	case c.probed != 0:
		as = ServerClient
	default:
		as.CA = PKI + "/ca.crt"
	}
	return fmt.Sprintf("https://127.0.0.1:%d%s", c.port, c.ready), as
}

// component adds a daemon of the control plane, as a unit or a static pod as the cluster block says.
func (b *builder) component(c component) {
	if b.staticPods() {
		b.pod(c)
		return
	}
	c.health, c.as = c.url()
	b.unit(c.service)
}

// pod adds a static pod like kubeadm's.
func (b *builder) pod(c component) {
	reference := b.image(c.image)
	manifest, err := yaml.Marshal(c.manifest(reference))
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("write the manifest of %s: %w", c.name, err)
	}
	text, _, _ := strings.Cut(string(manifest), "\nstatus:")
	url, as := c.url()
	b.held = append(b.held, step.Held{URL: url, Client: as})
	b.run(&step.StaticPod{
		Name: c.name, Path: step.Manifest(c.name), Content: text + "\n", Files: c.reads, URL: url, Client: as,
		Unit: c.name + ".service", UnitAt: step.UnitDir + c.name + ".service",
	})
}

func (c component) manifest(image string) *corev1.Pod {
	priority := int32(2000001000) // the value of system-node-critical
	scheme, port := corev1.URISchemeHTTPS, int32(c.port)
	if c.http {
		scheme = corev1.URISchemeHTTP
	}
	if c.probed != 0 {
		scheme, port = corev1.URISchemeHTTP, int32(c.probed)
	}
	probe := func(at string, delay, failures, period int32) *corev1.Probe {
		return &corev1.Probe{
			InitialDelaySeconds: delay, TimeoutSeconds: 15, FailureThreshold: failures, PeriodSeconds: period,
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{
					Host:   "127.0.0.1",
					Path:   at,
					Port:   intstr.FromInt32(port),
					Scheme: scheme,
				},
			},
		}
	}
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(c.cpu)}
	if c.memory != "" {
		requests[corev1.ResourceMemory] = resource.MustParse(c.memory)
	}
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.name, Namespace: metav1.NamespaceSystem,
			Labels:      map[string]string{"component": c.name, "tier": "control-plane"},
			Annotations: map[string]string{"clusterctl/files": step.FilesMark},
		},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical", Priority: &priority,
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: c.name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: c.exec,
				Env: c.environment,
				LivenessProbe: probe(
					c.live,
					10,
					8,
					10,
				), ReadinessProbe: probe(c.ready, 0, 3, 1), StartupProbe: probe(c.live, 10, 24, 10),
				Resources: corev1.ResourceRequirements{Requests: requests},
			}},
		},
	}
	if c.probed != 0 { // the kubelet's probe port is another one, so state the serving port
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{
			{ContainerPort: int32(c.port), HostPort: int32(c.port), Protocol: corev1.ProtocolTCP},
		}
	}
	mount := func(at string, typ corev1.HostPathType, readOnly bool) {
		name := strings.NewReplacer("/", "-", ".", "-").Replace(strings.TrimPrefix(at, "/"))
		p.Spec.Volumes = append(
			p.Spec.Volumes,
			corev1.Volume{
				Name:         name,
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: at, Type: &typ}},
			},
		)
		p.Spec.Containers[0].VolumeMounts = append(
			p.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: readOnly},
		)
	}
	for _, at := range c.mounts {
		if path.Ext(at) == "" {
			mount(at, corev1.HostPathDirectory, true)
		} else {
			mount(at, corev1.HostPathFile, true)
		}
	}
	for _, at := range c.shares {
		mount(at, corev1.HostPathDirectory, true)
	}
	for _, at := range c.writes {
		mount(at, corev1.HostPathDirectoryOrCreate, false)
	}
	return p
}

// image returns the reference of an image that is built from the bundle's programs. It changes with the content.
func (b *builder) image(name string) string {
	f, err := b.Files.File(name)
	if err != nil && b.err == nil {
		b.err = err
	}
	return bundle.Reference(f)
}

// staticForm adds the images that the kubelet needs before the first static pod can start.
func staticForm(b *builder) {
	for _, name := range []string{bundle.ControlPlaneImage, bundle.EtcdImage} {
		f, err := b.Files.File(name)
		if err != nil && b.err == nil {
			b.err = err
		}
		b.run(&step.Image{Reference: bundle.Reference(f), Digest: f.Digest, Size: f.Size})
	}
}

// unitForm removes the control plane's static pods. It runs before the kubelet is removed, because the kubelet must
// stop them.
func unitForm(b *builder) {
	for _, c := range staticPorts {
		url, as := c.url()
		b.add(&step.NoStaticPod{Name: c.name, Path: step.Manifest(c.name), URL: url, Client: as})
	}
}

// staticPorts has the health ports of the control plane's daemons. Daemons that others depend on come last.
var staticPorts = []component{
	{service: service{name: "metrics-server"}, port: 10261, ready: "/readyz"},
	{service: service{name: "kube-scheduler"}, port: 10259, ready: "/readyz"},
	{service: service{name: "kube-controller-manager"}, port: 10257, ready: "/readyz"},
	{service: service{name: "kube-apiserver"}, port: 6443, probed: probedPort, ready: "/readyz"},
	{service: service{name: "etcd"}, port: 2381, http: true, ready: "/readyz"},
}

// noStaticPod returns the step that removes one daemon's static pod.
func noStaticPod(name string) step.Step {
	i := slices.IndexFunc(staticPorts, func(c component) bool { return c.name == name })
	url, as := staticPorts[i].url()
	return &step.NoStaticPod{Name: name, Path: step.Manifest(name), URL: url, Client: as}
}

func (in Input) staticPods() bool {
	return in.controlPlane() && in.Cluster.ControlPlaneForm == hcl.FormStaticPods
}
func (in Input) units() bool { return !in.staticPods() }
