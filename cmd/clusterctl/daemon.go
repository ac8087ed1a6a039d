package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	_ "time/tzdata" // CronJobs name time zones, and a machine may know none

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"clusterctl/daemons/address"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers"
	"clusterctl/daemons/dashboard"
	"clusterctl/daemons/dns"
	"clusterctl/daemons/ingress"
	"clusterctl/daemons/kubelet"
	"clusterctl/daemons/metrics"
	"clusterctl/daemons/network"
	"clusterctl/daemons/proxy"
	"clusterctl/daemons/run"
	"clusterctl/daemons/scheduler"
	"clusterctl/daemons/version"
)

// daemonCommand is one of the cluster's daemons. make returns its configuration, on which the flags are set, and the
// function that starts it.
type daemonCommand struct {
	name, summary string
	newConfig     func() (cfg any, start func(context.Context, run.Env) error)
}

// daemons are all daemons, by the name that ps, systemctl and journalctl show.
var daemons = []daemonCommand{
	{"kube-apiserver", "serve the Kubernetes API from etcd", func() (any, func(context.Context, run.Env) error) {
		cfg := config.DefaultAPIServer()
		return &cfg, func(ctx context.Context, env run.Env) error { return apiserver.Run(ctx, cfg, env) }
	}},
	{"kube-scheduler", "place pods on nodes", func() (any, func(context.Context, run.Env) error) {
		cfg := config.DefaultScheduler()
		return &cfg, func(ctx context.Context, env run.Env) error { return scheduler.Run(ctx, cfg, env) }
	}},
	{"kube-controller-manager", "run the controllers", func() (any, func(context.Context, run.Env) error) {
		cfg := config.DefaultControllerManager()
		return &cfg, func(ctx context.Context, env run.Env) error { return controllers.Run(ctx, cfg, env) }
	}},
	{"kubelet", "run the pods of this node", func() (any, func(context.Context, run.Env) error) {
		cfg := config.DefaultKubelet()
		return &cfg, func(ctx context.Context, env run.Env) error {
			file, err := readKubeletFile(cfg.Config)
			if err != nil {
				return err
			}
			return kubelet.Run(ctx, cfg, file, env)
		}
	}},
	{"kube-proxy", "send what goes to services to their pods", func() (any, func(context.Context, run.Env) error) {
		cfg := config.DefaultProxy()
		return &cfg, func(ctx context.Context, env run.Env) error { return proxy.Run(ctx, cfg, env) }
	}},
	{
		"kube-network",
		"connect this node's pods to those of the other nodes",
		func() (any, func(context.Context, run.Env) error) {
			cfg := config.DefaultNetwork()
			return &cfg, func(ctx context.Context, env run.Env) error { return network.Run(ctx, cfg, env) }
		},
	},
	{"kube-dns", "answer for the names of services and pods", func() (any, func(context.Context, run.Env) error) {
		cfg := config.DefaultDNS()
		return &cfg, func(ctx context.Context, env run.Env) error { return dns.Run(ctx, cfg, env) }
	}},
	{
		"kube-ingress",
		"serve clients of the cluster's HTTP services as Ingresses say",
		func() (any, func(context.Context, run.Env) error) {
			cfg := config.DefaultIngress()
			return &cfg, func(ctx context.Context, env run.Env) error { return ingress.Run(ctx, cfg, env) }
		},
	},
	{
		"kube-address",
		"hold the control plane's virtual address when it is this machine's turn",
		func() (any, func(context.Context, run.Env) error) {
			cfg := config.DefaultAddress()
			return &cfg, func(ctx context.Context, env run.Env) error { return address.Run(ctx, cfg, env) }
		},
	},
	{"metrics-server", "serve what nodes and pods use", func() (any, func(context.Context, run.Env) error) {
		cfg := config.DefaultMetricsServer()
		return &cfg, func(ctx context.Context, env run.Env) error { return metrics.Run(ctx, cfg, env) }
	}},
	{
		"kube-dashboard",
		"serve the cluster's web pages to visitors with a token",
		func() (any, func(context.Context, run.Env) error) {
			cfg := config.DefaultDashboard()
			return &cfg, func(ctx context.Context, env run.Env) error { return dashboard.Run(ctx, cfg, env) }
		},
	},
}

// newDaemon returns the command that runs a daemon in the foreground. The binary does the same when it is called
// through a link with a daemon's name.
func newDaemon() *cobra.Command {
	cmd := &cobra.Command{Use: "daemon NAME", Short: "Run one of the cluster's daemons in the foreground", Hidden: true}
	for _, d := range daemons {
		cmd.AddCommand(d.newCommand(d.name))
	}
	return cmd
}

// linkedDaemon returns the command of the daemon whose name the binary was called by, or nil.
func linkedDaemon(arg0 string) *cobra.Command {
	for _, d := range daemons {
		if filepath.Base(arg0) == d.name {
			return d.newCommand(d.name)
		}
	}
	return nil
}

func (d daemonCommand) newCommand(use string) *cobra.Command {
	cfg, start := d.newConfig()
	var verbosity int
	cmd := &cobra.Command{
		Use: use, Aliases: []string{strings.TrimPrefix(d.name, "kube-")}, Short: d.summary, Args: cobra.NoArgs,
		Version:      version.Kubernetes + " (clusterctl " + version.Version + ")",
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Check(cfg); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			flags := map[string]string{}
			cmd.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = f.Value.String() })
			return runDaemon(cmd.Context(), d.name, verbosity, flags, start)
		},
	}
	cmd.Flags().AddFlagSet(config.Flags(d.name, cfg))
	cmd.Flags().AddFlagSet(pflag.NewFlagSet(d.name, pflag.ContinueOnError))
	cmd.Flags().IntVarP(&verbosity, "v", "v", 2, "how much to log: 2 is usual, 4 adds details")
	return cmd
}

// setTimerSlack lets the kernel delay this process's wake-ups. If that fails, the daemon works but uses more CPU.
func setTimerSlack() {
	if err := run.SetTimerSlack(); err != nil {
		fmt.Fprintln(os.Stderr, "Warning:", err)
	}
}

// runDaemon runs a daemon until the context ends, and reports its state to systemd.
func runDaemon(
	ctx context.Context,
	name string,
	verbosity int,
	flags map[string]string,
	start func(context.Context, run.Env) error,
) error {
	log := newLog(verbosity).With("daemon", name)
	klog.SetSlogLogger(log)
	env := run.NewEnv(log)
	env.About.Name, env.About.Flags = name, flags
	// The notifier must outlive the daemon to report that it stopped.
	var wg sync.WaitGroup
	notify, stop := context.WithCancel(ctx)
	wg.Go(func() { run.Notify(notify, env.Health) })
	wg.Go(func() { run.ManageMemory(notify, env.IdleTasks) })
	log.Info("starting", "version", version.Version)
	err := start(ctx, env)
	stop()
	wg.Wait()
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info("stopped")
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

func newLog(verbosity int) *slog.Logger {
	level := slog.LevelInfo
	if verbosity >= 4 {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && len(groups) == 0 && os.Getenv("JOURNAL_STREAM") != "" {
			return slog.Attr{} // the journal records the time itself
		}
		return a
	}}
	return slog.New(slog.NewTextHandler(os.Stderr, options))
}

// readKubeletFile reads a KubeletConfiguration; without a path it returns the defaults.
func readKubeletFile(path string) (config.KubeletFile, error) {
	if path == "" {
		return config.DefaultKubeletFile(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return config.KubeletFile{}, fmt.Errorf("read the kubelet's configuration: %w", err)
	}
	file, err := config.ReadKubeletFile(text)
	if err != nil {
		return file, fmt.Errorf("read the kubelet's configuration %s: %w", path, err)
	}
	return file, nil
}
