// Command gitops is the GitOps controller: it reconciles the cluster with Git repositories, as GitSources declare. It
// is a separate program in a module of its own because go-git, kustomize and Helm would double the size of every other
// program.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"clusterctl/cmd/gitops/apply"
	"clusterctl/cmd/gitops/compose"
	"clusterctl/cmd/gitops/fetch"
	"clusterctl/cmd/gitops/notify"
	"clusterctl/cmd/gitops/render"
	"clusterctl/cmd/gitops/sops"
	"clusterctl/daemons/client"
	"clusterctl/daemons/client/events"
	"clusterctl/daemons/config"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
	"clusterctl/daemons/run"
	"clusterctl/daemons/version"
	"clusterctl/kube/kubernetes"
	"clusterctl/kube/scheme"
)

const name = "gitops-controller"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case render.IsProcess(os.Args):
		err = render.RunProcess(os.Stdin, os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == "diff":
		err = diff(ctx, os.Args[2:], os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == compose.Command:
		err = compose.Run(ctx, os.Args[2:], os.Stdout)
	default:
		err = runController(ctx, os.Args[1:])
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// runController parses the flags and runs the controller until ctx ends.
func runController(ctx context.Context, args []string) error {
	cfg := config.DefaultGitOps()
	flags := config.Flags(name, &cfg)
	show := flags.Bool("version", false, "print the version and exit")
	verbosity := flags.IntP("v", "v", 2, "how much to log: 2 is usual, 4 adds details")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if *show {
		_, err := fmt.Println(version.Version)
		return err
	}
	if err := config.Check(&cfg); err != nil {
		return err
	}
	level := slog.LevelInfo
	if *verbosity >= 4 {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("daemon", name)
	klog.SetSlogLogger(log)
	env := run.NewEnv(log)
	env.About.Name, env.About.Flags = name, map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) { env.About.Flags[f.Name] = f.Value.String() })
	// The notifier must outlive the controller to report that it has stopped.
	var beside sync.WaitGroup
	besideCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		cancel()
		beside.Wait()
	}()
	beside.Go(func() { run.Notify(besideCtx, env.Health) })
	beside.Go(func() { run.ManageMemory(besideCtx, env.IdleTasks) })
	log.Info("starting", "version", version.Version)
	if err := serve(ctx, cfg, env); err != nil && ctx.Err() == nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// serve connects the parts and runs them until ctx ends.
func serve(ctx context.Context, cfg config.GitOps, env run.Env) error {
	if err := render.Isolate(); err != nil {
		return fmt.Errorf("keep renderers from the network: %w", err)
	}
	rest, err := client.Config(client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: name,
		JSON: true, Metrics: env.Metrics})
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(rest)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	fetcher, err := fetch.New(cfg.StateDir)
	if err != nil {
		return fmt.Errorf("use --state-dir %s: %w", cfg.StateDir, err)
	}
	processes, err := render.NewProcesses(os.Getenv("RUNTIME_DIRECTORY")) // in memory, for files may be decrypted
	if err != nil {
		return fmt.Errorf("prepare rendering: %w", err)
	}
	measures := gitops.NewMeasures(env.Metrics)
	broadcaster := events.NewBroadcaster(ctx, typed)
	defer broadcaster.Shutdown()
	objects := apply.New(rest)
	controller := gitops.New(gitops.Config{
		Client: untyped, Cluster: objects, Fetcher: fetcher, Workers: cfg.Workers, Log: env.Log,
		Observe: measures, Decrypter: sops.Decrypter{}, Sender: notify.Sender{Hosts: cfg.NotifyHosts},
		Renderer: render.Renderer{KubeVersion: version.Kubernetes, Processes: processes},
		Recorder: broadcaster.NewRecorder(scheme.Scheme(), corev1.EventSource{Component: name}),
	})
	var started atomic.Bool
	env.Health.AddReady("started", func() error {
		if !started.Load() {
			return errors.New("still starting")
		}
		return nil
	})
	env.Health.AddInformational("sources", func() error {
		if !controller.HasSynced() {
			return errors.New("the sources were not read: either another machine is active, or the API is not " +
				"reachable")
		}
		return nil
	})
	receiver, err := gitops.NewReceiver(controller)
	if err != nil {
		return fmt.Errorf("make the receiver of webhooks: %w", err)
	}
	active := func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return controller.Run(ctx) })
		g.Go(func() error {
			objects.Run(ctx, env.Log)
			return nil
		})
		g.Go(func() error { return receive(ctx, cfg, receiver, typed, env.Log) })
		return g.Wait()
	}
	g, ctx := errgroup.WithContext(ctx)
	if cfg.HealthAddress != "" {
		ln, err := net.Listen("tcp", cfg.HealthAddress)
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, ln, env.Local(), nil, time.Second, env.Log) })
	}
	g.Go(func() error {
		started.Store(true)
		if !cfg.LeaderElect {
			return active(ctx)
		}
		return client.Lead(ctx, typed, gitsource.Lease, env.Log, active)
	})
	return errors.Join(g.Wait(), fetcher.Close())
}
