// Package kubelet runs the pods of one node. It takes pods from the API and from a directory of manifests. It gives
// each pod a worker that takes one step after the other; daemons/kubelet/pod decides on the steps. It reports the
// status of the pods and of the node. The API is its only source for the state of the cluster, and the container
// runtime its only source for the state of containers.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/client"
	"clusterctl/daemons/client/events"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/certificate"
	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/credential"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/device"
	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/kubelet/housekeeping"
	"clusterctl/daemons/kubelet/image"
	"clusterctl/daemons/kubelet/logs"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/metrics"
	"clusterctl/daemons/kubelet/nodeagent"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/sleep"
	"clusterctl/daemons/kubelet/usage"
	"clusterctl/daemons/kubelet/volume"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
	"clusterctl/kube/scheme"
)

// Options replaces the kubelet's interfaces to its machine. A zero field means the real one. A simulated node (package
// hollow) sets all of them.
type Options struct {
	API     *rest.Config         // connection to the API; nil reads the kubeconfig
	Client  kubernetes.Interface // overrides the client made from API
	Runtime cri.Service          // nil dials the configured endpoint
	Mounter volume.Mounter       // nil uses the kernel
	Cgroups Cgroups              // nil uses the kernel
	Machine machine.Machine      // nil measures this machine
	LogRoot string               // directory of pods' logs; cri.LogRoot when empty
	// NoServer leaves out the HTTPS server and /healthz.
	NoServer bool
	// Watches are shared with other kubelets of this process. Nil means that this kubelet opens its own.
	Watches *Watches
	// Events is shared with other kubelets of this process, and its owner sends the events to the API. Nil means that
	// this kubelet sends its own.
	Events record.EventBroadcaster
	// NoLease leaves out the node's lease. The process that runs the kubelet vouches for the node instead.
	NoLease bool
	// Simulated means that containers are simulated and nothing listens in them. Probes and hooks that would connect to
	// them succeed at once.
	Simulated bool
}

// Kubelet is the agent of one node.
type Kubelet struct {
	settings
	nodeParts
	apiParts

	pods podWorkers

	static        staticState
	agent         *nodeagent.Agent
	pressures     *nodeagent.Monitor
	metrics       *metrics.Metrics
	claimUsage    usage.Meter // disk usage of the volumes of claims
	housekeepers  housekeepers
	tasks         []housekeeping.Task
	unboundedOnce sync.Once // reports volumes without enforced sizes once
}

// settings is what a kubelet was started with.
type settings struct {
	cfg         config.Kubelet
	file        config.KubeletFile
	env         run.Env
	name        string
	ips         []string
	logs        logs.Dir
	resolver    cri.Resolver
	hangTimeout time.Duration // how long volume operations may take before they are reported as hanging
	simulated   bool          // containers are simulated, see Options
}

// nodeParts are the interfaces to the machine.
type nodeParts struct {
	runtime         cri.Service
	runtimeName     string // name of the runtime, as in containerd://ID
	cgroups         Cgroups
	machine         machine.Machine
	volumes         *volume.Manager
	devices         *device.Manager
	drivers         *device.Registry // nil on simulated nodes
	puller          *puller
	pullRecords     *image.Records   // records which credentials pulled which images
	nodeCredentials *credential.Node // registry credentials for all pods
}

// apiParts are the connections to the API.
type apiParts struct {
	client  kubernetes.Interface
	api     *rest.Config
	objects *objectCache
	status  *statusWriter
	events  podEvents
	watches *Watches
	synced  chan struct{} // closed when the pods of the API have been listed
}

// staticState is the state of the static pods.
type staticState struct {
	mirrors *mirrorPods
	mu      sync.Mutex      // serializes reads of the manifest directory
	read    atomic.Bool     // the set of static pods is known
	missing atomic.Bool     // neither the manifest directory nor a record of its contents exists
	kept    map[string]bool // UIDs of running pods that are kept because their manifests may return; guarded by pods.mu
}

// defaultHangTimeout is how long volume operations may take before they are reported as hanging.
const defaultHangTimeout = 30 * time.Second

// Run runs the kubelet of this machine. It returns when ctx ends; pods keep running.
func Run(ctx context.Context, cfg config.Kubelet, file config.KubeletFile, env run.Env) error {
	return RunWith(ctx, cfg, file, env, Options{})
}

// RunWith is Run with replaced interfaces to the machine.
func RunWith(ctx context.Context, cfg config.Kubelet, file config.KubeletFile, env run.Env, o Options) error {
	if o.Client == nil && o.API == nil && (cfg.BootstrapKubeconfig != "" || file.RotateCertificates) {
		if err := certificate.Ensure(ctx, cfg, env.Log); err != nil {
			return err
		}
	}
	k, err := newKubelet(cfg, file, env, o)
	if err != nil {
		return err
	}
	if o.Runtime == nil {
		defer k.runtime.Close()
	}
	return k.run(ctx, o)
}

func newKubelet(cfg config.Kubelet, file config.KubeletFile, env run.Env, o Options) (*Kubelet, error) {
	if err := checkSettings(&file); err != nil {
		return nil, err
	}
	if file.ProtectKernelDefaults {
		if err := checkKernel("/proc/sys"); err != nil {
			return nil, err
		}
	}
	env.About.Config = map[string]any{"kubeletconfig": file}
	env.About.Paths = []string{
		"/configz",
		"/flagz",
		"/metrics/cadvisor",
		"/metrics/probes",
		"/metrics/resource",
		"/metrics/slis",
		"/pods",
		"/statusz",
	}
	name, err := machine.NodeName(cfg.HostnameOverride)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		settings: settings{cfg: cfg, file: file, env: env, name: name, logs: logs.Dir(o.LogRoot),
			hangTimeout: defaultHangTimeout, simulated: o.Simulated},
		nodeParts: nodeParts{runtime: o.Runtime, cgroups: o.Cgroups, machine: o.Machine},
		apiParts:  apiParts{api: o.API, watches: o.Watches, synced: make(chan struct{})},
		pods:      podWorkers{workers: map[types.UID]*worker{}},
	}
	if k.client = o.Client; k.client == nil {
		if err := k.connect(); err != nil {
			return nil, err
		}
	}
	if k.watches == nil {
		if k.watches, err = newWatches(k.client, fields.OneTermEqualSelector("spec.nodeName", k.name)); err != nil {
			return nil, err
		}
	}
	if err := k.openMachine(o); err != nil {
		return nil, err
	}
	k.setUpAPI()
	mounter := o.Mounter
	if mounter == nil {
		mounter = volume.Kernel{}
	}
	k.setUpVolumes(mounter)
	if err := k.setUpImages(); err != nil {
		return nil, err
	}
	k.setUpTasks(o)
	return k, nil
}

// openMachine connects to the container runtime and to the rest of the machine.
func (k *Kubelet) openMachine(o Options) (err error) {
	if k.runtime == nil {
		if k.runtime, err = cri.Dial(k.file.ContainerRuntimeEndpoint); err != nil {
			return err
		}
	}
	groups := &cgroup.Manager{Root: k.file.CgroupRoot}
	if k.cgroups == nil {
		k.cgroups = groups
	}
	if single := k.file.SingleProcessOOMKill; single != nil && !*single && !k.cgroups.IsUnified() {
		return errors.New(
			"singleProcessOOMKill: false is not supported by version 1 of control groups, which this machine has")
	}
	if k.machine == nil {
		k.machine = machine.Local{Root: k.cfg.RootDir, Cgroups: groups}
	}
	if k.logs == "" {
		k.logs = logs.Dir(cri.LogRoot)
	}
	if k.ips, err = machine.NodeIPs(k.cfg.NodeIP, k.name); err != nil {
		return err
	}
	k.resolver = cri.Resolver{Cluster: k.file.ClusterDNS, Domain: k.file.ClusterDomain}
	if k.file.ResolverConfig != "" {
		if k.resolver.Host, err = cri.ReadResolver(k.file.ResolverConfig); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("read the resolver configuration: %w", err)
		}
	}
	return nil
}

// setUpAPI creates what reads and writes the API.
func (k *Kubelet) setUpAPI() {
	k.objects = newObjectCache(k.client, k.env.Log, k.name, func() *corev1.Node { return k.agent.Node() },
		k.pods.refresh)
	k.status = newStatusWriter(k.client, k.env.Log)
	if k.simulated {
		k.status.writers = 1 // other simulated nodes write at the same time
	}
	k.static.mirrors = &mirrorPods{
		client:   k.client,
		log:      k.env.Log,
		static:   map[string]*corev1.Pod{},
		existing: map[string]*corev1.Pod{},
	}
	if r, ok := k.runtime.(*hollow.Runtime); ok && r.IsFinite == nil {
		r.IsFinite = k.pods.isFinite
	}
}

// setUpVolumes creates what prepares volumes and devices.
func (k *Kubelet) setUpVolumes(mounter volume.Mounter) {
	k.volumes = &volume.Manager{
		Root:    k.cfg.RootDir,
		Source:  k.objects,
		Mounter: mounter,
		Node:    k.fieldNode,
		// A volume may depend on a label that was just set.
		Labels: func(ctx context.Context) (map[string]string, error) {
			node, err := k.agent.Read(ctx)
			if err != nil {
				return nil, err
			}
			return node.Labels, nil
		},
		Provisioned: directory.Root,
		MachineID:   k.machine.Info().MachineID,
		Projects:    &volume.Projects{},
		OnUnbounded: k.recordUnbounded,
	}
	if k.simulated {
		// One machine hosts many simulated nodes, and nothing is written into their volumes.
		k.volumes.Provisioned, k.volumes.Projects = filepath.Join(k.cfg.RootDir, "local-volumes"), nil
	}
	k.devices = &device.Manager{Dir: k.cfg.RootDir, ReadClaim: k.nodeDevices().readClaim}
	if !k.simulated {
		k.drivers = &device.Registry{
			Dir:       filepath.Join(k.cfg.RootDir, "plugins_registry"),
			Log:       k.env.Log,
			OnGone:    func(ctx context.Context, driver string) { k.nodeDevices().deleteDriverSlices(ctx, driver) },
			OnChanged: func(driver string) { k.pods.updateStatuses(k.devices.Users(driver)) },
		}
		k.devices.Plugins, k.devices.Health = k.drivers, k.drivers.Health
	}
}

// setUpImages creates what pulls images and records the pulls.
func (k *Kubelet) setUpImages() (err error) {
	k.pullRecords = &image.Records{Policy: image.NewPolicy(&k.file),
		Store: image.Directory(filepath.Join(k.cfg.RootDir, "image_manager"))}
	if k.simulated {
		k.pullRecords.Store = &image.Memory{} // records live in memory, as the simulated images do
	}
	k.nodeCredentials, err = credential.New(credential.Options{
		RootDir: k.cfg.RootDir, Config: k.cfg.ImageCredentialProviderConfig,
		BinDir: k.cfg.ImageCredentialProviderBinDir,
		Log:    k.env.Log,
	})
	return err
}

// setUpTasks creates the metrics, the node agent and the periodic tasks.
func (k *Kubelet) setUpTasks(o Options) {
	k.metrics = metrics.New(k.env.Metrics, !o.NoServer)
	k.claimUsage = usage.Meter{Measure: k.volumes.Use, ReportHanging: k.recordHangingVolume,
		HangTimeout: defaultHangTimeout}
	k.env.Metrics.MustRegister(usage.Collector{Uses: k.claimUsageByPod})
	if !o.NoServer {
		k.env.Metrics.MustRegister(metrics.Node{
			Node: k.name, Pods: k.pods.states, Serving: &k.metrics.Serving,
			Expiry: func() (time.Time, error) {
				_, end, err := certificate.Lifetime(k.cfg.Kubeconfig)
				return end, err
			},
		})
		k.runtime = metrics.NewRuntime(k.env.Metrics).Wrap(k.runtime)
		k.cgroups = countedCgroups{k.cgroups, k.metrics.CgroupSeconds}
	}
	k.puller = newPuller(k.runtime, k.file.SerializeImagePulls != nil && *k.file.SerializeImagePulls)
	k.agent = k.newAgent(o.NoLease)
	k.housekeepers = k.newHousekeepers()
	k.tasks = k.periodicTasks()
}

// newAgent returns the agent that represents this machine as a Node.
func (k *Kubelet) newAgent(noLease bool) *nodeagent.Agent {
	k.pressures = &nodeagent.Monitor{Machine: k.machine, File: &k.file}
	c := nodeagent.Config{
		Name: k.name, IPs: k.ips, Labels: k.cfg.NodeLabels, File: &k.file, Client: k.client, Runtime: k.runtime,
		Machine: k.machine, Pressures: k.pressures, Log: k.env.Log, LeaseRenewals: k.metrics.LeaseRenewals,
		NoLease: noLease, Simulated: k.simulated,
		Registered: func(ctx context.Context) { k.static.mirrors.sync(ctx, nodeOwner(k.agent.Node())) },
	}
	if k.watches.isShared() {
		c.Cached = func() (*corev1.Node, error) { return k.watches.nodes.Get(k.name) }
	}
	return &nodeagent.Agent{Config: c}
}

// connect creates the API clients.
func (k *Kubelet) connect() (err error) {
	if k.api == nil {
		o := client.Options{
			Kubeconfig: k.cfg.Kubeconfig,
			APIServers: k.cfg.APIServers,
			UserAgent:  "kubelet",
			Metrics:    k.env.Metrics,
		}
		if k.api, err = client.Config(o); err != nil {
			return err
		}
	}
	if k.client, err = kubernetes.NewForConfig(k.api); err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	return nil
}

func (k *Kubelet) run(ctx context.Context, o Options) error {
	log := k.env.Log
	if err := os.MkdirAll(k.cfg.RootDir, 0o750); err != nil {
		return fmt.Errorf("make the kubelet's directory: %w", err)
	}
	version, err := awaitRuntime(ctx, k.runtime, log)
	if err != nil {
		return err
	}
	k.runtimeName = version.RuntimeName
	log.Info("runtime answers", "runtime", version.RuntimeName, "version", version.RuntimeVersion)
	if err := k.cgroups.Setup(k.limits().allPodsLimits()); err != nil {
		return fmt.Errorf("set up the cgroups of pods: %w", err)
	}
	if err := k.devices.Load(); err != nil {
		return err
	}
	if err := k.pullRecords.Recover(imageID(ctx, k.runtime)); err != nil {
		log.Warn("take in images that were being pulled", "error", err)
	}
	if err := k.volumes.RecordProvisioned(); err != nil {
		return fmt.Errorf("note which volumes are on this machine: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	k.pods.open(ctx)

	broadcaster := o.Events
	if broadcaster == nil {
		broadcaster = events.NewBroadcaster(ctx, k.client)
		defer broadcaster.Shutdown()
	}
	source := corev1.EventSource{Component: "kubelet", Host: k.name}
	k.events = podEvents{broadcaster.NewRecorder(scheme.Scheme(), source), k.static.mirrors}

	g.Go(func() error { k.objects.run(ctx); return nil })
	g.Go(func() error { k.status.run(ctx); return nil })
	if k.drivers != nil {
		g.Go(func() error { return k.drivers.Run(ctx) })
	}
	if k.file.StaticPodPath != "" {
		if err := k.readManifests(); err != nil {
			log.Error("read manifests", "path", k.file.StaticPodPath, "error", err)
		}
		g.Go(func() error { return k.watchManifests(ctx) })
	}
	g.Go(func() error { return k.watchRuntime(ctx) })
	g.Go(func() error { return k.agent.Run(ctx, k.events.recorder) })
	g.Go(func() error { return k.watchPods(ctx) })
	g.Go(func() error { k.runPeriodicTasks(ctx); return nil })
	if !o.NoServer {
		g.Go(func() error { return k.serve(ctx) })
	}
	if k.file.RotateCertificates {
		g.Go(func() error { return awaitRenewal(ctx, k.cfg.Kubeconfig) })
	}
	err = g.Wait()
	k.pods.close()
	k.pods.wg.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// awaitRuntime waits for the first response of the runtime and returns it.
func awaitRuntime(ctx context.Context, runtime cri.Service, log *slog.Logger) (*criapi.VersionResponse, error) {
	for isReported := false; ; isReported = true {
		v, err := runtime.Version(ctx)
		if err == nil {
			return v, nil
		}
		if !isReported {
			log.Warn("waiting for the container runtime", "error", err)
		}
		if !sleep.For(ctx, 200*time.Millisecond) {
			return nil, fmt.Errorf("wait for the container runtime: %w", err)
		}
	}
}

// fieldNode returns the facts about the node that pods can read.
func (k *Kubelet) fieldNode() pod.Node {
	n := pod.Node{Name: k.name, IPs: k.ips}
	if node := k.agent.Node(); node != nil {
		n.Allocatable = node.Status.Allocatable
	}
	return n
}
