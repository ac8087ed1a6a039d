// Package scheduler is the daemon that assigns pods to nodes. It watches pods and nodes, selects nodes with the plugins
// of package plugin and the tables of package cluster, and writes the result to the API. It decides about one pod at a
// time and writes many results at once.
package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/events"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/profile"
	"clusterctl/kube/kubernetes"
)

// Lease is the name of the lease in kube-system whose holder is active.
const Lease = profile.Lease

// Run schedules until ctx ends or the lease is lost.
func Run(ctx context.Context, cfg config.Scheduler, env run.Env) error {
	settings, err := profile.Load(cfg.Config)
	if err != nil {
		return err
	}
	restConfig, err := client.Config(
		client.Options{Kubeconfig: cfg.Kubeconfig, APIServers: cfg.APIServers, UserAgent: Lease, Metrics: env.Metrics},
	)
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
	m, err := newMetrics(env.Metrics)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	resources, err := podResourceMetrics(m)
	if err != nil {
		return fmt.Errorf("register the metrics of pods' resources: %w", err)
	}
	env.MoreMetrics = map[string]http.Handler{"/metrics/resources": resources}
	active := func(ctx context.Context) error { return newScheduler(api, env.Log, m, settings).run(ctx) }
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return env.ServeHealth(ctx, cfg.BindAddress, cfg.SecurePort, cfg.TLSCertFile, cfg.TLSPrivateKeyFile,
			cfg.ClientCAFile, cfg.ClientCRLFile, cfg.Profiling, client.NewAccessReviewer(api))
	})
	g.Go(func() error {
		env.Health.AddReady("started", func() error { return nil }) // a standby is ready to lead
		if !cfg.LeaderElect {
			return active(ctx)
		}
		active, err := client.ObserveLeading(env.Metrics, Lease, active)
		if err != nil {
			return err
		}
		return client.Lead(ctx, leases, Lease, env.Log, active)
	})
	return g.Wait()
}

// scheduler is the work of the active process.
type scheduler struct {
	api      kubernetes.Interface
	log      *slog.Logger
	now      func() time.Time
	events   map[string]*events.Recorder // by the profile's name
	metrics  *metrics
	settings profile.Settings
	shapes   *cluster.Shapes

	queue    *queue
	refusals *refusalQueue

	mu        sync.Mutex // guards the fields below; queue.mu may be locked while it is held
	cluster   *cluster.Cluster
	budgets   budgets
	nextStart int // where the next search starts
	waiting   map[types.UID]*binding

	binds    errgroup.Group // running binds, limited to maxConcurrentBinds
	resuming sync.WaitGroup // goroutines that continue bindings whose claims are bound
}

// maxConcurrentBinds is the maximum number of bindings that are written at once.
const maxConcurrentBinds = 64

func newScheduler(api kubernetes.Interface, log *slog.Logger, m *metrics, settings profile.Settings) *scheduler {
	s := &scheduler{
		api: api, log: log, now: time.Now, metrics: m, settings: settings, shapes: cluster.NewShapes(),
		queue:    newQueue(time.Now, settings),
		refusals: newRefusalQueue(), cluster: cluster.New(), budgets: budgets{}, waiting: map[types.UID]*binding{},
		events: map[string]*events.Recorder{},
	}
	s.queue.onEnter = m.countEntered
	s.binds.SetLimit(maxConcurrentBinds)
	m.scheduler.Store(s)
	return s
}

// run schedules until ctx ends.
func (s *scheduler) run(ctx context.Context) error {
	broadcaster := events.NewBroadcaster(ctx, s.api)
	defer broadcaster.Shutdown()
	for _, p := range s.settings.Profiles {
		recorder, err := events.NewRecorder(broadcaster, p.Name)
		if err != nil {
			return err
		}
		s.events[p.Name] = recorder
	}
	stop, err := s.watch(ctx)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		stop()
		return nil // ended during the wait
	}
	s.mu.Lock()
	nodes := s.cluster.Len()
	s.mu.Unlock()
	s.log.Info("scheduling", "nodes", nodes)
	var telling sync.WaitGroup
	for range refusalWriters {
		telling.Go(func() { s.writeRefusals(ctx) })
	}
	s.loop(ctx)
	telling.Wait()
	err = s.binds.Wait()
	stop() // from here on, no event starts another goroutine in resuming
	s.resuming.Wait()
	return err
}

// loop schedules pods as they become due, and sleeps while there are none.
func (s *scheduler) loop(ctx context.Context) {
	flush := time.NewTicker(30 * time.Second)
	defer flush.Stop()
	for ctx.Err() == nil {
		if it, ok := s.queue.pop(); ok {
			s.schedule(ctx, it)
			continue
		}
		sleep := time.NewTimer(s.queue.untilNext())
		select {
		case <-ctx.Done():
		case <-s.queue.ready:
		case <-sleep.C:
		case <-flush.C:
			s.queue.activateStale()
			s.expireBindings(ctx)
		}
		sleep.Stop()
	}
}

// schedule selects a node for one pod and starts writing the result.
func (s *scheduler) schedule(ctx context.Context, it *item) {
	start := s.now()
	s.mu.Lock()
	if !s.queue.isWaiting(it) { // it was deleted since it was taken from the queue
		s.mu.Unlock()
		return
	}
	pod := it.pod
	by := s.settings.Profile(pod.Scheduler)
	search := newSearch(by, s.cluster, pod, &it.class.verdicts)
	placement, next := search.selectNode(s.nextStart)
	s.nextStart = next
	if placement.Node == nil {
		preemption := s.refuse(it, search, placement)
		claim, old := unusableAllocation(search.task, placement), leftOverClaim(search.task, placement)
		s.mu.Unlock()
		s.metrics.observeDecision(s.now().Sub(start))
		s.metrics.observeAttempt("unschedulable", by.Name, s.now().Sub(start))
		s.preempt(ctx, pod, preemption)
		s.deallocate(ctx, pod, claim)
		s.discardLeftOverClaim(ctx, pod, old)
		return
	}
	b := s.assume(it, search, placement.Node, start)
	s.mu.Unlock()
	s.metrics.observeDecision(s.now().Sub(start))
	s.binds.Go(func() error {
		s.bind(ctx, b)
		return nil
	})
}

// refuse returns the pod and its equals to the queue, and selects the pods to preempt for it.
func (s *scheduler) refuse(it *item, search *search, placement Placement) Preemption {
	pod, message := it.pod, placement.Explain()
	plugins := placement.Plugins()
	preemption := Preemption{IsHopeless: true}
	if placement.Nodes > 0 {
		preemption = search.preempt(placement, s.budgets)
		if !search.profile.Preempt.IsDisabled {
			s.metrics.preemptions.Inc()
		}
	}
	if preemption.Reason != "" {
		message += " preemption: " + preemption.Reason
	}
	switch {
	case preemption.Node != nil:
		message += fmt.Sprintf(" preemption: found a potential placement for pod on node %s, preempting %d victims",
			preemption.Node.Name, len(preemption.Victims))
		s.setNomination(it, preemption.Node.Name)
		s.queue.suspend(pod.UID)
	case preemption.IsHopeless && pod.Nominated != "":
		s.setNomination(it, "")
	}
	refused := s.queue.refuse(it, helpfulEvents(plugins), &refusal{message, plugins})
	s.metrics.countEntered("unschedulable", attemptFailed, len(refused))
	for _, one := range refused {
		s.refusals.add(one)
	}
	return preemption
}

// setNomination sets the nominated node of a pod that is being scheduled, or removes it.
func (s *scheduler) setNomination(it *item, node string) {
	promised := *it.pod
	promised.Nominated = node
	s.nominate(&promised, node)
	s.queue.nominate(it, &promised)
}
