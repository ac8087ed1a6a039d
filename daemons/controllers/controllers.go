// Package controllers runs the controllers. Each is a child package. They share one set of watch caches and are active
// in one process of the cluster at a time.
package controllers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"golang.org/x/sync/errgroup"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/client"
	"clusterctl/daemons/client/events"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/accounttoken"
	"clusterctl/daemons/controllers/autoscaler"
	"clusterctl/daemons/controllers/binder"
	"clusterctl/daemons/controllers/bootstraptoken"
	"clusterctl/daemons/controllers/certificate"
	"clusterctl/daemons/controllers/cloudnode"
	"clusterctl/daemons/controllers/clusterrole"
	"clusterctl/daemons/controllers/cronjob"
	"clusterctl/daemons/controllers/daemonset"
	"clusterctl/daemons/controllers/deployment"
	"clusterctl/daemons/controllers/devicetaint"
	"clusterctl/daemons/controllers/disruption"
	"clusterctl/daemons/controllers/endpoints"
	"clusterctl/daemons/controllers/ephemeral"
	"clusterctl/daemons/controllers/garbage"
	"clusterctl/daemons/controllers/identity"
	"clusterctl/daemons/controllers/job"
	"clusterctl/daemons/controllers/legacytoken"
	"clusterctl/daemons/controllers/loadbalancer"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/daemons/controllers/mirroring"
	"clusterctl/daemons/controllers/namespace"
	"clusterctl/daemons/controllers/networkpolicy"
	"clusterctl/daemons/controllers/node"
	"clusterctl/daemons/controllers/nodecidr"
	"clusterctl/daemons/controllers/podgc"
	"clusterctl/daemons/controllers/policystatus"
	"clusterctl/daemons/controllers/presence"
	"clusterctl/daemons/controllers/protection"
	"clusterctl/daemons/controllers/provisioner"
	"clusterctl/daemons/controllers/replicaset"
	"clusterctl/daemons/controllers/resourceclaim"
	"clusterctl/daemons/controllers/resourcequota"
	"clusterctl/daemons/controllers/serviceaccount"
	"clusterctl/daemons/controllers/servicecidr"
	"clusterctl/daemons/controllers/statefulset"
	"clusterctl/daemons/controllers/storagemigration"
	"clusterctl/daemons/controllers/taint"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// all lists every controller with its name for --controllers, its service account, and upstream's name for the source
// of its events, which is the account if upstream's controller records none. The account's role has the same name as
// the account.
var all = []struct {
	name string
	new  func(loop.Context) loop.Controller
	as   string
	from string
}{
	{"serviceaccount", serviceaccount.New, "service-account-controller", ""},
	{"serviceaccount-token", accounttoken.New, "serviceaccount-token-controller", ""},
	{"namespace", namespace.New, "namespace-controller", ""},
	{"nodecidr", nodecidr.New, "node-controller", "cidrAllocator"},
	{"node", node.New, "node-controller", "node-controller"},
	{"cloud-node", cloudnode.New, "cloud-node-controller", "cloud-node-controller"},
	{"taint-eviction", taint.New, "taint-eviction-controller", "taint-eviction-controller"},
	{"deployment", deployment.New, "deployment-controller", "deployment-controller"},
	{"replicaset", replicaset.New, "replicaset-controller", "replicaset-controller"},
	{"replicationcontroller", replicaset.NewReplicationControllers, "replication-controller", "replication-controller"},
	{"statefulset", statefulset.New, "statefulset-controller", "statefulset-controller"},
	{"daemonset", daemonset.New, "daemon-set-controller", "daemonset-controller"},
	{"job", job.New, "job-controller", "job-controller"},
	{"cronjob", cronjob.New, "cronjob-controller", "cronjob-controller"},
	{"horizontal-pod-autoscaler", autoscaler.New, "horizontal-pod-autoscaler", "horizontal-pod-autoscaler"},
	{"endpoints", endpoints.New, "endpoint-controller", "endpoint-controller"},
	{"endpointslice", endpoints.NewSlices, "endpointslice-controller", "endpoint-slice-controller"},
	{
		"endpointslice-mirroring",
		mirroring.New,
		"endpointslicemirroring-controller",
		"endpoint-slice-mirroring-controller",
	},
	{"networkpolicy", networkpolicy.New, "networkpolicy-controller", ""},
	{"presence", presence.New, "presence-controller", ""},
	{"service", loadbalancer.New, "service-controller", "service-controller"},
	{"disruption", disruption.New, "disruption-controller", "controllermanager"},
	{"podgc", podgc.New, "pod-garbage-collector", ""},
	{"garbage", garbage.New, "generic-garbage-collector", "garbage-collector-controller"},
	{"resourcequota", resourcequota.New, "resourcequota-controller", ""},
	{"persistentvolume-binder", binder.New, "persistent-volume-binder", "persistentvolume-controller"},
	{"directory-provisioner", provisioner.New, "directory-provisioner", directory.Provisioner},
	{"ephemeral-volume", ephemeral.New, "ephemeral-volume-controller", "ephemeral_volume"},
	{"resourceclaim", resourceclaim.New, "resource-claim-controller", "resource_claim"},
	{"device-taint-eviction", devicetaint.New, "device-taint-eviction-controller", "device-taint-eviction-controller"},
	{"persistentvolume-expander", provisioner.NewForeign, "expand-controller", "volume_expand"},
	{"pvc-protection", protection.NewClaims, "pvc-protection-controller", ""},
	{"pv-protection", protection.NewVolumes, "pv-protection-controller", ""},
	{"vac-protection", protection.NewAttributesClasses, "volumeattributesclass-protection-controller", ""},
	{"validatingadmissionpolicy-status", policystatus.New, "validatingadmissionpolicy-status-controller", ""},
	{"certificate", certificate.New, "certificate-controller", ""},
	{"certificate-approval", certificate.NewApprover, "certificate-controller", ""},
	{"podcertificaterequest-cleaner", certificate.NewPodRequestCleaner, "podcertificaterequest-cleaner", ""},
	{"clusterrole-aggregation", clusterrole.New, "clusterrole-aggregation-controller", ""},
	{"token-cleaner", bootstraptoken.NewCleaner, "token-cleaner", ""},
	{"bootstrap-signer", bootstraptoken.NewSigner, "bootstrap-signer", ""},
	{"service-cidr", servicecidr.New, "service-cidrs-controller", ""},
	{"legacy-serviceaccount-token-cleaner", legacytoken.New, "legacy-service-account-token-cleaner", ""},
	{"storage-version-migrator", storagemigration.New, "storage-version-migrator-controller", ""},
}

// Lease is the name of the lease in kube-system whose holder is active.
const Lease = "kube-controller-manager"

// Options replaces dependencies of the controllers, for tests that control time or inject faults, and for clusters in a
// single process.
type Options struct {
	Clock clock.WithTicker                             // clock of all timers; nil means the real clock
	Wrap  func(to http.RoundTripper) http.RoundTripper // wraps the transport to the API server; nil means no wrapper
	// AliveWithoutHeartbeat reports whether a node is alive whenever this process is, and renews no lease. nil means
	// that no node is.
	AliveWithoutHeartbeat func(node string) bool
}

// Run runs the controllers that cfg asks for until ctx ends or the lease is lost.
func Run(ctx context.Context, cfg config.ControllerManager, env run.Env) error {
	return RunWith(ctx, cfg, env, Options{})
}

// RunWith is like Run, with dependencies replaced by o.
func RunWith(ctx context.Context, cfg config.ControllerManager, env run.Env, o Options) error {
	chosen, err := config.ChosenControllers(cfg.Controllers)
	if err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	connect := func(anonymous bool) (*rest.Config, error) {
		c, err := client.Config(
			client.Options{
				Kubeconfig: cfg.Kubeconfig,
				APIServers: cfg.APIServers,
				UserAgent:  Lease,
				Anonymous:  anonymous,
				Metrics:    env.Metrics,
			},
		)
		if err == nil && o.Wrap != nil {
			c.Wrap(o.Wrap)
		}
		return c, err
	}
	restConfig, err := connect(false)
	if err != nil {
		return err
	}
	leases, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election"))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	queues, err := loop.CountQueues(env.Metrics)
	if err != nil {
		return err
	}
	m := manager{
		rest:                  restConfig,
		anonymous:             func() (*rest.Config, error) { return connect(true) },
		cfg:                   cfg,
		controllerNames:       chosen,
		clock:                 o.Clock,
		aliveWithoutHeartbeat: o.AliveWithoutHeartbeat,
		queues:                queues,
		metrics:               env.Metrics,
		log:                   env.Log,
	}
	env.IdleTasks.SetDense()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return env.ServeHealth(ctx, cfg.BindAddress, cfg.SecurePort, cfg.TLSCertFile, cfg.TLSPrivateKeyFile,
			cfg.ClientCAFile, cfg.ClientCRLFile, cfg.Profiling, client.NewAccessReviewer(leases))
	})
	g.Go(func() error {
		env.Health.AddReady("started", func() error { return nil }) // a standby is ready to lead
		if !cfg.LeaderElect {
			return m.run(ctx)
		}
		active, err := client.ObserveLeading(env.Metrics, Lease, m.run)
		if err != nil {
			return err
		}
		return client.Lead(ctx, leases, Lease, env.Log, active)
	})
	return g.Wait()
}

// manager holds what is needed while this process leads.
type manager struct {
	rest                  *rest.Config
	anonymous             func() (*rest.Config, error) // the same configuration without credentials
	cfg                   config.ControllerManager
	controllerNames       []string
	clock                 clock.WithTicker
	aliveWithoutHeartbeat func(node string) bool
	queues                workqueue.MetricsProvider
	metrics               prometheus.Registerer
	log                   *slog.Logger
}

func (m manager) run(ctx context.Context) error {
	c := loop.Context{
		Config:                m.cfg,
		Log:                   m.log,
		Clock:                 m.clock,
		Queues:                m.queues,
		Metrics:               m.metrics,
		AliveWithoutHeartbeat: m.aliveWithoutHeartbeat,
		Followers:             loop.NewFollowers(),
	}
	var err error
	if c.Client, c.Dynamic, c.Metadata, err = identity.Clients(m.rest); err != nil {
		return err
	}
	// Shared caches use the manager's own user.
	c.Informers = informers.New(c.Client, informers.WithTransform(newSlimmer().slim))
	as, err := m.identities(c)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	var controllers []loop.Controller
	for _, entry := range all {
		if !slices.Contains(m.controllerNames, entry.name) {
			continue
		}
		own, err := as(entry.as)
		if err != nil {
			return err
		}
		recorder := events.NewLazy(ctx, own.Client, cmp.Or(entry.from, entry.as))
		defer recorder.Shutdown()
		own.Events = recorder
		controllers = append(controllers, entry.new(own))
	}
	for _, controller := range controllers {
		// Start controllers only after all have registered their caches: a controller that runs may start them.
		g.Go(func() error { return controller.Run(ctx) })
	}
	c.Informers.StartWithContext(ctx)
	defer c.Informers.Shutdown()
	return g.Wait()
}

// identities returns a function that returns a controller's context, which acts as the service account. If service
// account credentials are disabled, all controllers use the manager's context.
func (m manager) identities(c loop.Context) (func(account string) (loop.Context, error), error) {
	if !m.cfg.UseServiceAccountCredentials {
		return func(string) (loop.Context, error) { return c, nil }, nil
	}
	anonymous, err := m.anonymous()
	if err != nil {
		return nil, err
	}
	accounts, err := identity.New(c, anonymous)
	if err != nil {
		return nil, err
	}
	return accounts.ContextFor, nil
}
