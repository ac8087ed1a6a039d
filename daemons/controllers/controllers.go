// Package controllers runs the controllers: one child package each, all fed by one set
// of watch caches, active in one process of the cluster at a time.
package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"golang.org/x/sync/errgroup"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/accounttoken"
	"clusterctl/daemons/controllers/autoscaler"
	"clusterctl/daemons/controllers/binder"
	"clusterctl/daemons/controllers/bootstraptoken"
	"clusterctl/daemons/controllers/certificate"
	"clusterctl/daemons/controllers/clusterrole"
	"clusterctl/daemons/controllers/cronjob"
	"clusterctl/daemons/controllers/daemonset"
	"clusterctl/daemons/controllers/deployment"
	"clusterctl/daemons/controllers/devicetaint"
	"clusterctl/daemons/controllers/disruption"
	"clusterctl/daemons/controllers/endpoints"
	"clusterctl/daemons/controllers/ephemeral"
	"clusterctl/daemons/controllers/garbage"
	"clusterctl/daemons/controllers/job"
	"clusterctl/daemons/controllers/legacytoken"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/controllers/mirroring"
	"clusterctl/daemons/controllers/namespace"
	"clusterctl/daemons/controllers/node"
	"clusterctl/daemons/controllers/nodecidr"
	"clusterctl/daemons/controllers/podgc"
	"clusterctl/daemons/controllers/policystatus"
	"clusterctl/daemons/controllers/protection"
	"clusterctl/daemons/controllers/provisioner"
	"clusterctl/daemons/controllers/replicaset"
	"clusterctl/daemons/controllers/resourceclaim"
	"clusterctl/daemons/controllers/resourcequota"
	"clusterctl/daemons/controllers/serviceaccount"
	"clusterctl/daemons/controllers/servicecidr"
	"clusterctl/daemons/controllers/statefulset"
	"clusterctl/daemons/controllers/taint"
	"clusterctl/daemons/run"
)

// all is every controller, by the name that --controllers knows it by, and by upstream's name for whom its events are from; those
// without one have no events.
var all = []struct {
	name string
	new  func(loop.Context) loop.Controller
	from string
}{
	{"serviceaccount", serviceaccount.New, ""},
	{"serviceaccount-token", accounttoken.New, ""},
	{"namespace", namespace.New, ""},
	{"nodecidr", nodecidr.New, "cidrAllocator"},
	{"node", node.New, "node-controller"},
	{"taint-eviction", taint.New, "taint-eviction-controller"},
	{"deployment", deployment.New, "deployment-controller"},
	{"replicaset", replicaset.New, "replicaset-controller"},
	{"replicationcontroller", replicaset.NewReplicationControllers, "replication-controller"},
	{"statefulset", statefulset.New, "statefulset-controller"},
	{"daemonset", daemonset.New, "daemonset-controller"},
	{"job", job.New, "job-controller"},
	{"cronjob", cronjob.New, "cronjob-controller"},
	{"horizontal-pod-autoscaler", autoscaler.New, "horizontal-pod-autoscaler"},
	{"endpoints", endpoints.New, "endpoint-controller"},
	{"endpointslice", endpoints.NewSlices, "endpoint-slice-controller"},
	{"endpointslice-mirroring", mirroring.New, "endpoint-slice-mirroring-controller"},
	{"disruption", disruption.New, "controllermanager"},
	{"podgc", podgc.New, ""},
	{"garbage", garbage.New, "garbage-collector-controller"},
	{"resourcequota", resourcequota.New, ""},
	{"persistentvolume-binder", binder.New, "persistentvolume-controller"},
	{"directory-provisioner", provisioner.New, directory.Provisioner},
	{"ephemeral-volume", ephemeral.New, "ephemeral_volume"},
	{"resourceclaim", resourceclaim.New, "resource_claim"},
	{"device-taint-eviction", devicetaint.New, "device-taint-eviction-controller"},
	{"persistentvolume-expander", provisioner.NewForeign, "volume_expand"},
	{"pvc-protection", protection.NewClaims, ""},
	{"pv-protection", protection.NewVolumes, ""},
	{"vac-protection", protection.NewAttributesClasses, ""},
	{"validatingadmissionpolicy-status", policystatus.New, ""},
	{"certificate", certificate.New, ""},
	{"certificate-approval", certificate.NewApprover, ""},
	{"clusterrole-aggregation", clusterrole.New, ""},
	{"token-cleaner", bootstraptoken.NewCleaner, ""},
	{"bootstrap-signer", bootstraptoken.NewSigner, ""},
	{"service-cidr", servicecidr.New, ""},
	{"legacy-serviceaccount-token-cleaner", legacytoken.New, ""},
}

// Lease is the name of the lease in kube-system whose holder is active.
const Lease = "kube-controller-manager"

// Options replace what the controllers touch, for clusters that time is moved and faults are put in.
type Options struct {
	Clock clock.WithTicker                             // all that waits goes by it; nil means the real one
	Wrap  func(to http.RoundTripper) http.RoundTripper // what requests to the API server go through; nil means nothing
}

// Run runs the controllers that cfg asks for until ctx ends or the lease is lost.
func Run(ctx context.Context, cfg config.ControllerManager, env run.Env) error {
	return RunWith(ctx, cfg, env, Options{})
}

// RunWith runs the controllers with some of what they touch replaced.
func RunWith(ctx context.Context, cfg config.ControllerManager, env run.Env, o Options) error {
	chosen, err := config.ChosenControllers(cfg.Controllers)
	if err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	restConfig, err := client.Config(client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: Lease, Metrics: env.Metrics})
	if err != nil {
		return err
	}
	if o.Wrap != nil {
		restConfig.Wrap(o.Wrap)
	}
	leases, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election"))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	queues, err := loop.CountQueues(env.Metrics)
	if err != nil {
		return err
	}
	m := manager{rest: restConfig, cfg: cfg, chosen: chosen, clock: o.Clock, queues: queues, log: env.Log}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return env.ServeHealth(ctx, cfg.BindAddress, cfg.SecurePort, cfg.TLSCertFile, cfg.TLSPrivateKeyFile, cfg.ClientCAFile, cfg.ClientCRLFile, cfg.Profiling, client.NewJudge(leases))
	})
	g.Go(func() error {
		env.Health.Ready("started", func() error { return nil }) // a standby is ready to lead
		if !cfg.LeaderElect {
			return m.run(ctx)
		}
		return client.Lead(ctx, leases, Lease, env.Log, m.run)
	})
	return g.Wait()
}

// manager is what runs while this process leads.
type manager struct {
	rest   *rest.Config
	cfg    config.ControllerManager
	chosen []string
	clock  clock.WithTicker
	queues workqueue.MetricsProvider
	log    *slog.Logger
}

func (m manager) run(ctx context.Context) error {
	typed, err := kubernetes.NewForConfig(m.rest)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(m.rest)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	meta, err := metadata.NewForConfig(m.rest)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: typed.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	c := loop.Context{
		Client: typed, Dynamic: untyped, Metadata: meta, Config: m.cfg, Log: m.log, Clock: m.clock, Queues: m.queues,
		Informers: informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithTransform(newSlimmer().slim)),
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, entry := range all {
		if slices.Contains(m.chosen, entry.name) {
			c.Events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: entry.from})
			controller := entry.new(c)
			g.Go(func() error { return controller.Run(ctx) })
		}
	}
	c.Informers.StartWithContext(ctx)
	defer c.Informers.Shutdown()
	return g.Wait()
}
