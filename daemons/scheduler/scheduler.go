// Package scheduler is the daemon that gives every pod a node: it watches pods without
// one and the nodes, chooses by the functions of package plugin, and writes its
// choice through the API. It decides one pod after the other and writes many at once.
package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/daemons/scheduler/plugin"
)

// Lease is the name of the lease in kube-system whose holder is active.
const Lease = "kube-scheduler"

// Name is the schedulerName of the pods that this scheduler places.
const Name = corev1.DefaultSchedulerName

// Run schedules until ctx ends or the lease is lost.
func Run(ctx context.Context, cfg config.Scheduler, env run.Env) error {
	restConfig, err := client.Config(client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: Lease})
	if err != nil {
		return err
	}
	leases, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(restConfig), "leader-election"))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	api, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	s, err := newScheduler(api, env)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return env.ServeHealth(ctx, cfg.BindAddress, cfg.SecurePort, cfg.TLSCertFile, cfg.TLSPrivateKeyFile, cfg.ClientCAFile, cfg.ClientCRLFile, cfg.Profiling, client.NewJudge(api))
	})
	g.Go(func() error {
		env.Health.Ready("started", func() error { return nil }) // a standby is ready to lead
		if !cfg.LeaderElect {
			return s.run(ctx)
		}
		return client.Lead(ctx, leases, Lease, env.Log, s.run)
	})
	return g.Wait()
}

// scheduler is the running daemon.
type scheduler struct {
	api     kubernetes.Interface
	log     *slog.Logger
	now     func() time.Time
	events  record.EventRecorder
	metrics *metrics

	queue *queue
	cache *cache

	factory informers.SharedInformerFactory
	pods    informers.SharedInformerFactory // of pods that have not finished
	known   lookups

	binds errgroup.Group // under way, bounded
}

// bindsAtOnce bounds how many decisions are being written.
const bindsAtOnce = 64

func newScheduler(api kubernetes.Interface, env run.Env) (*scheduler, error) {
	m, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s := &scheduler{api: api, log: env.Log, now: time.Now, metrics: m, queue: newQueue(time.Now), cache: newCache()}
	m.scheduler.Store(s)
	return s, nil
}

// run is what the active process does.
func (s *scheduler) run(ctx context.Context) error {
	s.factory = informers.NewSharedInformerFactoryWithOptions(s.api, 0, informers.WithTransform(slim))
	s.pods = informers.NewSharedInformerFactoryWithOptions(s.api, 0, informers.WithTransform(slim), informers.WithTweakListOptions(unfinished))
	s.known = newLookups(s.factory)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: s.api.CoreV1().Events("")})
	defer broadcaster.Shutdown()
	s.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: Name})
	s.binds = errgroup.Group{}
	s.binds.SetLimit(bindsAtOnce)

	synced, err := s.watch()
	if err != nil {
		return err
	}
	s.factory.StartWithContext(ctx)
	s.pods.StartWithContext(ctx)
	defer s.factory.Shutdown()
	defer s.pods.Shutdown()
	if !clientcache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ended while waiting
	}
	s.log.Info("scheduling", "nodes", len(s.cache.snapshot(&plugin.Pod{Pod: &corev1.Pod{}}).Nodes))
	s.loop(ctx)
	return s.binds.Wait()
}

// loop takes pods as they come, and sleeps when there are none to try.
func (s *scheduler) loop(ctx context.Context) {
	flush := time.NewTicker(30 * time.Second)
	defer flush.Stop()
	for ctx.Err() == nil {
		if it, ok := s.queue.pop(); ok {
			s.schedule(ctx, it)
			continue
		}
		sleep := time.NewTimer(s.queue.wait())
		select {
		case <-ctx.Done():
		case <-s.queue.ready:
		case <-sleep.C:
		case <-flush.C:
			s.queue.flush()
		}
		sleep.Stop()
	}
}

// schedule decides on one pod and has the decision written.
func (s *scheduler) schedule(ctx context.Context, it *item) {
	began := s.now()
	pod := it.taken
	snapshot := s.cache.snapshot(pod)
	snapshot.Namespaces, snapshot.Volumes = s.known.namespace, s.known
	placement := Place(pod, snapshot)
	s.metrics.decided(s.now().Sub(began))
	if placement.Node == nil {
		s.refuse(ctx, it, snapshot, placement)
		return
	}
	node := placement.Node.Name
	s.cache.assume(pod, node)
	s.binds.Go(func() error {
		s.bind(ctx, it, node, began)
		return nil
	})
}
