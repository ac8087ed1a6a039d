package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers"
	"clusterctl/daemons/metrics"
	"clusterctl/daemons/run"
	"clusterctl/daemons/scheduler"
	"clusterctl/kube/kubernetes"
)

// devCluster is a development cluster that runs in one process, with etcd as a child process.
type devCluster struct {
	nodes      int
	data       string
	port       int
	kubeconfig string
	verbosity  int
	grace      time.Duration
	resolution time.Duration

	files devFiles
	log   *slog.Logger
}

func newDev() *cobra.Command {
	d := &devCluster{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster of simulated nodes in one process, for development",
		Long: `Runs etcd, and in this process the API server, scheduler, controllers and a number
of nodes whose containers are only pretended. It needs no root. The kubeconfig is
written below the data directory; interrupt it to end everything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	cmd.Flags().IntVar(&d.nodes, "nodes", 1, "number of nodes")
	cmd.Flags().
		StringVar(&d.data, "data", "", "directory of all state, kept; a temporary one that is removed when empty")
	cmd.Flags().IntVar(&d.port, "port", 0, "port of the API server; a free one when 0")
	cmd.Flags().
		StringVar(&d.kubeconfig, "kubeconfig", "", "where to write the administrator's kubeconfig; DATA/kubeconfig "+
			"when empty")
	cmd.Flags().
		DurationVar(&d.grace, "node-monitor-grace-period", 50*time.Second, "silence after which a node is taken for "+
			"lost, at least 1s")
	cmd.Flags().DurationVar(&d.resolution, "metric-resolution", 15*time.Second,
		"how often it is counted what nodes and pods use, at least 1s")
	cmd.Flags().
		IntVarP(&d.verbosity, "v", "v", 0, "how much to log to stderr: 0 nothing but trouble, 2 what is usual, 4 "+
			"details")
	return cmd
}

// check returns an error if a flag is out of its range.
func (d *devCluster) check() error {
	switch {
	case d.nodes < 0 || d.nodes > 5000:
		return fmt.Errorf("--nodes %d: between 0 and 5000", d.nodes)
	case d.grace < time.Second:
		return fmt.Errorf("--node-monitor-grace-period %s: at least 1s", d.grace)
	case d.resolution < time.Second:
		return fmt.Errorf("--metric-resolution %s: at least 1s", d.resolution)
	}
	return nil
}

// run runs the cluster until it is interrupted or a daemon fails.
func (d *devCluster) run(cmd *cobra.Command) (err error) {
	started := time.Now()
	if err := d.check(); err != nil {
		return err
	}
	if d.data == "" {
		if d.data, err = os.MkdirTemp("", "clusterctl-dev-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(d.data)) }()
	}
	unlock, err := lockDevData(d.data)
	if err != nil {
		return err
	}
	defer unlock()
	d.log = newLog(d.verbosity)
	if d.verbosity == 0 {
		d.log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelError}))
	}
	klog.SetSlogLogger(d.log)
	if d.port == 0 {
		if d.port, err = run.FreePort(); err != nil {
			return err
		}
	}
	if d.files, err = writeDevFiles(d.data, d.port, d.kubeconfig); err != nil {
		return err
	}
	all, fail := context.WithCancelCause(cmd.Context())
	defer fail(nil)
	// The store must outlive the daemons that write to it.
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(all))
	defer stopStore()
	var store sync.WaitGroup
	etcdURL, err := d.startEtcd(storeCtx, &store, fail)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(all)
	api := run.NewEnv(d.log.With("daemon", "kube-apiserver"))
	g.Go(func() error { return apiserver.Run(ctx, d.apiServer(etcdURL), api) })
	// adapts the garbage collector to the API server, which uses the most memory
	g.Go(func() error { run.ManageMemory(ctx, api.IdleTasks); return nil })
	g.Go(func() error {
		if err := waitReady(ctx, api.Health); err != nil {
			return err
		}
		if err := d.holdLeases(ctx); err != nil {
			return err
		}
		if err := d.startDaemons(ctx, g); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(),
			"Kubernetes API at https://127.0.0.1:%d after %d ms, %d nodes.\nTry: export KUBECONFIG=%s\n", d.port,
			time.Since(started).Milliseconds(), d.nodes, d.files.admin)
		return nil
	})
	err = g.Wait()
	stopStore()
	store.Wait()
	if cmd.Context().Err() != nil {
		return nil // interrupted by the user, which is the normal end
	}
	if all.Err() != nil {
		return context.Cause(all) // the error that stopped the cluster
	}
	return err
}

// placeholderEndpoint is the endpoint of the service kubernetes. Programs expect an endpoint, but it must not be a
// loopback address, and the API server listens only there. The address is in the documentation range of RFC 5737, so
// that no other host answers there.
const placeholderEndpoint = "192.0.2.1"

func (d *devCluster) apiServer(etcdURL string) config.APIServer {
	cfg := config.DefaultAPIServer()
	f := d.files
	cfg.BindAddress, cfg.AdvertiseAddress, cfg.SecurePort = "127.0.0.1", placeholderEndpoint, d.port
	cfg.Profiling = true // useful for development
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile, cfg.ClientCAFile = f.path("apiserver.crt"), f.path("apiserver.key"), f.path(
		"ca.crt")
	cfg.EtcdServers = []string{etcdURL}
	cfg.EtcdCAFile, cfg.EtcdCertFile, cfg.EtcdKeyFile = f.path("etcd-ca.crt"), f.path(
		"apiserver-etcd-client.crt"), f.path("apiserver-etcd-client.key")
	cfg.KubeletCertificateAuthority = f.path("ca.crt")
	cfg.KubeletClientCertificate, cfg.KubeletClientKey = f.path("apiserver-kubelet-client.crt"), f.path(
		"apiserver-kubelet-client.key")
	cfg.ServiceAccountKeyFiles, cfg.ServiceAccountSigningKeyFile = []string{f.path("sa.pub")}, f.path("sa.key")
	cfg.RequestheaderClientCAFile = f.path("front-proxy-ca.crt")
	cfg.RequestheaderAllowedNames = []string{certs.FrontProxyClient().CommonName}
	cfg.ProxyClientCertFile, cfg.ProxyClientKeyFile = f.path("front-proxy-client.crt"), f.path("front-proxy-client.key")
	return cfg
}

// holdLeases writes the leases that show who the leader is, with a duration of ten years. They are not renewed: this
// process is the only candidate, and a laptop that sleeps would lose a lease and stop its components. After a restart,
// the former holder is known to have ended, because it would still use the store.
func (d *devCluster) holdLeases(ctx context.Context) error {
	const decade = 10 * 365 * 24 * 3600 // in seconds
	config, err := clientcmd.BuildConfigFromFlags("", d.files.admin)
	if err != nil {
		return fmt.Errorf("read the kubeconfig %s: %w", d.files.admin, err)
	}
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	now := metav1.NowMicro()
	for _, name := range []string{controllers.Lease, scheduler.Lease} {
		patch, err := json.Marshal(map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"holderIdentity":       "clusterctl-dev",
				"leaseDurationSeconds": decade,
				"acquireTime":          now,
				"renewTime":            now,
			},
		})
		if err != nil {
			return fmt.Errorf("write the lease %s: %w", name, err)
		}
		if _, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Patch(ctx, name, types.ApplyPatchType,
			patch,
			metav1.PatchOptions{FieldManager: "clusterctl-dev", Force: ptr.To(true)}); err != nil {
			return fmt.Errorf("write the lease %s: %w", name, err)
		}
	}
	return nil
}

// startDaemons starts everything that needs the API.
func (d *devCluster) startDaemons(ctx context.Context, g *errgroup.Group) error {
	nodes, err := d.hollowNodes()
	if err != nil {
		return err
	}
	g.Go(func() error {
		cfg := config.DefaultControllerManager()
		cfg.Kubeconfig, cfg.SecurePort, cfg.RootCAFile = d.files.path("controller-manager.conf"), 0, d.files.path(
			"ca.crt")
		cfg.ServiceAccountPrivateKeyFile = d.files.path("sa.key")
		cfg.ClusterSigningCertFile, cfg.ClusterSigningKeyFile = d.files.path("ca.crt"), d.files.path("ca.key")
		cfg.ClusterCIDR = []string{hollowPods.String()}
		cfg.NodeMonitorGracePeriod = d.grace
		cfg.LeaderElect = false // see holdLeases
		cfg.NodeMonitorPeriod, cfg.NodeStartupGracePeriod = min(cfg.NodeMonitorPeriod, d.grace/4), min(
			cfg.NodeStartupGracePeriod,
			d.grace*6/5,
		)
		return controllers.RunWith(ctx, cfg, run.NewEnv(d.log.With("daemon", "kube-controller-manager")),
			controllers.Options{AliveWithoutHeartbeat: nodes.isHollow})
	})
	g.Go(func() error {
		cfg := config.DefaultScheduler()
		cfg.Kubeconfig, cfg.SecurePort = d.files.path("scheduler.conf"), 0
		cfg.LeaderElect = false // see holdLeases
		return scheduler.Run(ctx, cfg, run.NewEnv(d.log.With("daemon", "kube-scheduler")))
	})
	nodes.start(ctx, g, d)
	g.Go(func() error {
		env := run.NewEnv(d.log.With("daemon", "metrics-server"))
		return metrics.RunWith(ctx, d.metricsServer(), env, metrics.Options{Source: nodes, Alias: "localhost"})
	})
	return nil
}

// startEtcd runs the bundle's etcd as a child process until ctx ends, at most as long as this process. It calls fail if
// etcd ends earlier.
func (d *devCluster) startEtcd(ctx context.Context, wg *sync.WaitGroup, fail func(error)) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(filepath.Dir(self), "etcd")
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("etcd is not beside %s: run `make build`: %w", self, err)
	}
	client, err := run.FreePort()
	if err != nil {
		return "", err
	}
	peer, err := run.FreePort()
	if err != nil {
		return "", err
	}
	clientURL, peerURL := fmt.Sprintf("https://127.0.0.1:%d", client), fmt.Sprintf("https://127.0.0.1:%d", peer)
	f := d.files
	cfg := config.Etcd{
		Name: "dev", DataDir: filepath.Join(d.data, "etcd"),
		ListenClientURLs: []string{clientURL}, AdvertiseClientURLs: []string{clientURL},
		ListenPeerURLs: []string{
			peerURL,
		}, InitialAdvertisePeerURLs: []string{peerURL}, InitialCluster: "dev=" + peerURL, InitialClusterState: "new",
		CertFile: f.path(
			"etcd.crt"), KeyFile: f.path("etcd.key"), TrustedCAFile: f.path("etcd-ca.crt"), ClientCertAuth: true,
		PeerCertFile: f.path(
			"etcd.crt",
		), PeerKeyFile: f.path("etcd.key"), PeerTrustedCAFile: f.path("etcd-ca.crt"), PeerClientCertAuth: true,
		// With one member there are no heartbeats to miss, so it can elect itself quickly.
		HeartbeatInterval: 20, ElectionTimeout: 100, UnsafeNoFsync: true,
	}
	out, err := os.OpenFile(filepath.Join(d.data, "etcd.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, config.Args(&cfg, &config.Etcd{})...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	wg.Go(func() {
		defer out.Close()
		if err := cmd.Run(); ctx.Err() == nil {
			fail(fmt.Errorf("etcd ended: %w: %s", err, lastEtcdError(out.Name())))
		}
	})
	return clientURL, nil
}

func waitReady(ctx context.Context, h *run.Health) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := h.Err(true)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the API server did not get ready: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
