package kubelet

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/sleep"
)

// watchPods watches the pods that are assigned to this node, and the services for the pods' environment.
func (k *Kubelet) watchPods(whole context.Context) error {
	g, ctx := errgroup.WithContext(whole)
	if !k.watches.isShared() {
		g.Go(func() error { return k.watches.Run(ctx) })
	}
	g.Go(func() error {
		if !k.watches.waitListed(ctx) {
			return ctx.Err()
		}
		updated := func(p *corev1.Pod) { k.handlePod(whole, p) }
		defer k.watches.follow(k.name, podFollower{updated: updated, deleted: k.handleDeleted})()
		if k.watches.waitSynced(ctx) {
			close(k.synced)
			k.env.Log.Info("pods known", "count", k.watches.count(k.name))
			k.adoptOrphans(ctx, nil)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	return g.Wait()
}

// podWorkers holds the workers of the pods of this node.
type podWorkers struct {
	mu      sync.Mutex
	workers map[types.UID]*worker
	isOpen  bool           // workers may be started
	wg      sync.WaitGroup // the goroutines of the workers

	lock lockWatch // observes mu for health checks
}

// open lets workers start until ctx ends. Then all of them end.
func (s *podWorkers) open(ctx context.Context) {
	s.mu.Lock()
	s.isOpen = true
	s.mu.Unlock()
	context.AfterFunc(ctx, s.close)
}

// close ends all workers, and lets no further ones start.
func (s *podWorkers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = false
	for _, w := range s.workers {
		w.cancel()
	}
}

// trimObject removes fields that the kubelet does not need from objects that it caches. It copies the object before
// changing it.
func trimObject(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Pod:
		c := *o
		c.ManagedFields = nil
		return &c, nil
	case *corev1.Service:
		c := *o
		c.ManagedFields = nil
		return &c, nil
	case *corev1.Node:
		c := *o
		c.ManagedFields = nil
		return &c, nil
	}
	return o, nil
}

// handlePod handles a pod of this node that was added or changed in the API.
func (k *Kubelet) handlePod(ctx context.Context, p *corev1.Pod) {
	k.status.setPod(p)
	if pod.IsMirror(p) {
		k.static.mirrors.addMirror(p)
		k.pods.wake(p.Annotations[pod.MirrorAnnotation]) // writes the status to the mirror pod
		return
	}
	k.updateWorker(p, k.checkPlacement(ctx, p))
}

// updateWorker passes a pod to its worker. It starts a worker if there is none. misplaced is why the pod does not suit
// this node, or nil.
func (k *Kubelet) updateWorker(p *corev1.Pod, misplaced *pod.End) {
	k.pods.mu.Lock()
	defer k.pods.mu.Unlock()
	if !k.pods.isOpen {
		return
	}
	if w := k.pods.workers[p.UID]; w != nil {
		w.update(k.allocate(w, p))
		return
	}
	w := newWorker(k, p)
	if len(p.Status.ContainerStatuses) > 0 {
		w.inbox.size.allocated = pod.ReportedAllocation(p)
		w.inbox.pod = k.allocate(w, p)
	}
	if p.DeletionTimestamp == nil {
		if !hasBegun(p) {
			w.inbox.evicted = pod.CheckPod(p, k.cfg.AllowedUnsafeSysctls)
		}
		if w.inbox.evicted == nil && !pod.IsStatic(p) {
			w.inbox.evicted = k.checkAdmission(p, misplaced)
		}
		if w.inbox.evicted != nil {
			k.events.record(p, corev1.EventTypeWarning, w.inbox.evicted.Reason, "%s", w.inbox.evicted.Message)
		}
	}
	k.startWorker(w)
}

// startWorker starts a worker. It runs until its pod is gone or the workers are closed, whoever starts it. The caller
// holds k.pods.mu.
func (k *Kubelet) startWorker(w *worker) {
	uid := w.inbox.pod.UID
	k.pods.workers[uid] = w
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	k.pods.wg.Go(func() {
		defer cancel()
		w.run(ctx)
		if ctx.Err() != nil {
			return
		}
		w.inbox.mu.Lock()
		p := w.inbox.pod // may have been updated since
		w.inbox.mu.Unlock()
		k.objects.removePod(uid)
		k.status.removePod(uid)
		k.metrics.Probes.RemovePod(p)
		k.pods.mu.Lock()
		delete(k.pods.workers, uid)
		k.pods.mu.Unlock()
		if pod.IsStatic(p) {
			k.startReplacement(p)
		}
	})
}

// handleDeleted handles a pod that the API no longer has.
func (k *Kubelet) handleDeleted(p *corev1.Pod) {
	if pod.IsMirror(p) {
		k.static.mirrors.removeMirror(p)
		return
	}
	k.pods.mu.Lock()
	w := k.pods.workers[p.UID]
	k.pods.mu.Unlock()
	if w != nil {
		w.inbox.update(func() { w.inbox.removed = true })
	}
}

// watchRuntime wakes the workers of pods for which the runtime reports events. It also wakes all workers periodically,
// in case an event was lost. If the runtime reports no events, it wakes them every second.
func (k *Kubelet) watchRuntime(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan error, 1)
	listen := func() { wg.Go(func() { ended <- k.runtime.Events(ctx, k.pods.wake) }) }
	listen()
	tick := time.NewTicker(relistInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			k.pods.wakeAll()
		case err := <-ended:
			if errors.Is(err, cri.ErrNoEvents) {
				k.env.Log.Info("the runtime reports no changes: polling it every second")
				tick.Reset(time.Second)
				continue
			}
			if ctx.Err() == nil {
				k.env.Log.Warn("the runtime's events ended; listening again", "error", err)
			}
			if !sleep.For(ctx, 500*time.Millisecond) {
				return ctx.Err()
			}
			listen()
			k.pods.wakeAll() // also for a runtime whose event stream repeatedly ends before it is known to work
		}
	}
}

// wake wakes the worker of a pod to observe the runtime. An empty uid wakes all workers.
func (s *podWorkers) wake(uid string) {
	if uid == "" {
		s.wakeAll()
		return
	}
	s.mu.Lock()
	w := s.workers[types.UID(uid)]
	s.mu.Unlock()
	if w != nil {
		w.inbox.update(func() { w.inbox.hasRuntimeChange = true })
	}
}

func (s *podWorkers) wakeAll() {
	s.mu.Lock()
	all := make([]*worker, 0, len(s.workers))
	for _, w := range s.workers {
		all = append(all, w)
	}
	s.mu.Unlock()
	for _, w := range all {
		w.inbox.update(func() { w.inbox.hasRuntimeChange = true })
	}
}

// refresh wakes the worker of a pod that uses an API object that has changed.
func (s *podWorkers) refresh(uid types.UID) {
	s.mu.Lock()
	w := s.workers[uid]
	s.mu.Unlock()
	if w != nil {
		w.inbox.update(func() { w.inbox.refreshRequested, w.inbox.needsRetry = true, true })
	}
}

// relistInterval is how often all pods are observed even though the runtime reports events.
const relistInterval = 5 * time.Minute
