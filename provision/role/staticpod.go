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
	probePort    int
	isPlainHTTP  bool   // port serves health without TLS
	livePath     string // path of the liveness check
	readyPath    string
	cpu          string
	memory       string
	image        string   // name of an image in the bundle
	mounts       []string // files and directories of the machine that it reads
	socketDirs   []string // directories of sockets that it connects to
	writableDirs []string // directories that it writes to

	environment []corev1.EnvVar // only for the static pod; systemd's environment does not apply to pods
}

func (c component) healthURL() (url string, as host.Client) {
	switch {
	case c.isPlainHTTP:
		return fmt.Sprintf("http://127.0.0.1:%d%s", c.port, c.readyPath), as
	case c.probePort != 0:
		as = ServerClient
	default:
		as.CA = PKI + "/ca.crt"
	}
	return fmt.Sprintf("https://127.0.0.1:%d%s", c.port, c.readyPath), as
}

// addComponent adds a daemon of the control plane, as a unit or a static pod as the cluster block says.
func (b *builder) addComponent(c component) {
	if b.hasStaticPods() {
		b.addStaticPod(c)
		return
	}
	c.health, c.credentials = c.healthURL()
	b.addUnit(c.service)
}

// addStaticPod adds a static pod like kubeadm's.
func (b *builder) addStaticPod(c component) {
	reference := b.imageReference(c.image)
	manifest, err := yaml.Marshal(c.manifest(reference))
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("write the manifest of %s: %w", c.name, err)
	}
	text, _, _ := strings.Cut(string(manifest), "\nstatus:")
	url, as := c.healthURL()
	b.heldDaemons = append(b.heldDaemons, step.HeldDaemon{URL: url, Client: as})
	b.addUnitStep(&step.StaticPod{
		Name: c.name, Path: step.Manifest(c.name), Content: text + "\n", Files: c.reads, URL: url, Client: as,
		Unit: c.name + ".service", UnitAt: step.UnitDir + c.name + ".service",
	})
}

// probe returns a probe of the component's health at a path.
func (c component) probe(at string, delay, failures, period int32) *corev1.Probe {
	scheme, port := corev1.URISchemeHTTPS, int32(c.port)
	if c.isPlainHTTP {
		scheme = corev1.URISchemeHTTP
	}
	if c.probePort != 0 {
		scheme, port = corev1.URISchemeHTTP, int32(c.probePort)
	}
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

// manifest returns the component's static pod.
func (c component) manifest(image string) *corev1.Pod {
	priority := int32(2000001000) // the value of system-node-critical
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
				Env:           c.environment,
				LivenessProbe: c.probe(c.livePath, 10, 8, 10), ReadinessProbe: c.probe(c.readyPath, 0, 3, 1),
				StartupProbe: c.probe(c.livePath, 10, 24, 10),
				Resources:    corev1.ResourceRequirements{Requests: requests},
			}},
		},
	}
	if c.probePort != 0 { // the kubelet's probe port is another one, so state the serving port
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{
			{ContainerPort: int32(c.port), HostPort: int32(c.port), Protocol: corev1.ProtocolTCP},
		}
	}
	for _, at := range c.mounts {
		if path.Ext(at) == "" {
			mount(p, at, corev1.HostPathDirectory, true)
		} else {
			mount(p, at, corev1.HostPathFile, true)
		}
	}
	for _, at := range c.socketDirs {
		mount(p, at, corev1.HostPathDirectory, true)
	}
	for _, at := range c.writableDirs {
		mount(p, at, corev1.HostPathDirectoryOrCreate, false)
	}
	return p
}

// mount mounts a path of the machine into the first container of a pod, at the same path.
func mount(p *corev1.Pod, at string, typ corev1.HostPathType, readOnly bool) {
	name := strings.NewReplacer("/", "-", ".", "-").Replace(strings.TrimPrefix(at, "/"))
	p.Spec.Volumes = append(
		p.Spec.Volumes,
		corev1.Volume{
			Name:         name,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: at, Type: &typ}},
		},
	)
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: readOnly})
}

// imageReference returns the reference of an image that is built from the bundle's programs. It changes with the
// content.
func (b *builder) imageReference(name string) string {
	f, err := b.Files.File(name)
	if err != nil && b.err == nil {
		b.err = err
	}
	return bundle.Reference(f)
}

// addStaticPodImages adds the images that the kubelet needs before the first static pod can start.
func addStaticPodImages(b *builder) {
	for _, name := range []string{bundle.ControlPlaneImage, bundle.EtcdImage} {
		f, err := b.Files.File(name)
		if err != nil && b.err == nil {
			b.err = err
		}
		b.addUnitStep(&step.Image{Reference: bundle.Reference(f), Digest: f.Digest, Size: f.Size})
	}
}

// removeStaticPods removes the control plane's static pods. It runs before the kubelet is removed, because the kubelet
// must stop them.
func removeStaticPods(b *builder) {
	for _, c := range staticComponents {
		url, as := c.healthURL()
		b.add(&step.RemoveStaticPod{Name: c.name, Path: step.Manifest(c.name), URL: url, Client: as})
	}
}

// staticComponents has the health ports of the control plane's daemons. Daemons that others depend on come last.
var staticComponents = []component{
	{service: service{name: "metrics-server"}, port: 10261, readyPath: "/readyz"},
	{service: service{name: "kube-scheduler"}, port: 10259, readyPath: "/readyz"},
	{service: service{name: "kube-controller-manager"}, port: 10257, readyPath: "/readyz"},
	{service: service{name: "kube-apiserver"}, port: 6443, probePort: plainHealthPort, readyPath: "/readyz"},
	{service: service{name: "etcd"}, port: 2381, isPlainHTTP: true, readyPath: "/readyz"},
}

// removeStaticPod returns the step that removes one daemon's static pod.
func removeStaticPod(name string) step.Step {
	i := slices.IndexFunc(staticComponents, func(c component) bool { return c.name == name })
	url, as := staticComponents[i].healthURL()
	return &step.RemoveStaticPod{Name: name, Path: step.Manifest(name), URL: url, Client: as}
}

func (in Input) hasStaticPods() bool {
	return in.isControlPlane() && in.Cluster.ControlPlaneForm == hcl.FormStaticPods
}
func (in Input) hasUnits() bool { return !in.hasStaticPods() }
