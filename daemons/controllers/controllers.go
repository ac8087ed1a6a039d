// Package controllers runs the controllers: one child package each, all fed by one set
// of watch caches, active in one process of the cluster at a time.
package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

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
	"clusterctl/daemons/controllers/resourcequota"
	"clusterctl/daemons/controllers/serviceaccount"
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
	{"pvc-protection", protection.NewClaims, ""},
	{"pv-protection", protection.NewVolumes, ""},
	{"validatingadmissionpolicy-status", policystatus.New, ""},
	{"certificate", certificate.New, ""},
	{"certificate-approval", certificate.NewApprover, ""},
	{"clusterrole-aggregation", clusterrole.New, ""},
	{"token-cleaner", bootstraptoken.NewCleaner, ""},
	{"bootstrap-signer", bootstraptoken.NewSigner, ""},
	{"legacy-serviceaccount-token-cleaner", legacytoken.New, ""},
}

// Lease is the name of the lease in kube-system whose holder is active.
const Lease = "kube-controller-manager"

// Run runs the controllers that cfg asks for until ctx ends or the lease is lost.
func Run(ctx context.Context, cfg config.ControllerManager, env run.Env) error {
	chosen, err := choose(cfg.Controllers)
	if err != nil {
		return err
	}
	restConfig, err := client.Config(client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: Lease})
	if err != nil {
		return err
	}
	leases, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election"))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return env.ServeHealth(ctx, cfg.BindAddress, cfg.SecurePort, cfg.TLSCertFile, cfg.TLSPrivateKeyFile, cfg.ClientCAFile, cfg.ClientCRLFile, cfg.Profiling, client.NewJudge(leases))
	})
	g.Go(func() error {
		env.Health.Ready("started", func() error { return nil }) // a standby is ready to lead
		if !cfg.LeaderElect {
			return active(ctx, restConfig, cfg, chosen, env.Log)
		}
		return client.Lead(ctx, leases, Lease, env.Log, func(ctx context.Context) error {
			return active(ctx, restConfig, cfg, chosen, env.Log)
		})
	})
	return g.Wait()
}

func active(ctx context.Context, restConfig *rest.Config, cfg config.ControllerManager, chosen []string, log *slog.Logger) error {
	typed, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	meta, err := metadata.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: typed.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	c := loop.Context{
		Client: typed, Dynamic: untyped, Metadata: meta, Config: cfg, Log: log, Now: time.Now,
		Informers: informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithTransform(slim)),
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, entry := range all {
		if slices.Contains(chosen, entry.name) {
			c.Events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: entry.from})
			controller := entry.new(c)
			g.Go(func() error { return controller.Run(ctx) })
		}
	}
	c.Informers.StartWithContext(ctx)
	defer c.Informers.Shutdown()
	return g.Wait()
}

// slim drops from cached objects what no controller reads.
func slim(obj any) (any, error) {
	if o, ok := obj.(interface {
		SetManagedFields([]metav1.ManagedFieldsEntry)
	}); ok {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// choose reads --controllers: * stands for all, -name takes one away.
func choose(patterns []string) ([]string, error) {
	var out []string
	for _, p := range patterns {
		known := p == "*"
		for _, entry := range all {
			switch p {
			case "*", entry.name:
				known = true
				if !slices.Contains(out, entry.name) {
					out = append(out, entry.name)
				}
			case "-" + entry.name:
				known = true
			}
		}
		if !known {
			return nil, fmt.Errorf("--controllers: no controller is named %q", p)
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return slices.Contains(patterns, "-"+name) }), nil
}
