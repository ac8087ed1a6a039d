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
)

// watchPods watches the pods that are assigned to this node, and the services for the pods' environment.
func (k *Kubelet) watchPods(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if !k.watches.shared() {
		g.Go(func() error { return k.watches.Run(ctx) })
	}
	g.Go(func() error {
		if !k.watches.listed(ctx) {
			return ctx.Err()
		}
		defer k.watches.follow(k.name, podFollower{seen: k.seen, lost: k.lost})()
		if k.watches.synced(ctx) {
			close(k.synced)
			k.env.Log.Info("pods known", "count", k.watches.count(k.name))
			k.adoptOrphans(ctx, nil)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	return g.Wait()
}

// lean removes fields that the kubelet does not need from objects that it caches. It copies the object before changing
// it.
func lean(o any) (any, error) {
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

// seen handles a pod of this node that was added or changed in the API.
func (k *Kubelet) seen(p *corev1.Pod) {
	k.status.seen(p)
	if pod.IsMirror(p) {
		k.mirrors.sawMirror(p)
		k.wakeStatic(p)
		return
	}
	k.give(p)
}

// give passes a pod to its worker. It starts a worker if there is none.
func (k *Kubelet) give(p *corev1.Pod) {
	misplaced := k.misplaced(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx == nil || k.ctx.Err() != nil {
		return
	}
	if w := k.workers[p.UID]; w != nil {
		w.update(k.allocate(w, p))
		return
	}
	w := newWorker(k, p)
	if len(p.Status.ContainerStatuses) > 0 {
		w.given = pod.Given(p)
		w.pod = k.allocate(w, p)
	}
	if p.DeletionTimestamp == nil {
		if !began(p) {
			w.evicted = pod.Refuse(p, k.cfg.AllowedUnsafeSysctls)
		}
		if w.evicted == nil && !pod.Static(p) {
			w.evicted = k.refuse(p, misplaced)
		}
		if w.evicted != nil {
			k.event(p, corev1.EventTypeWarning, w.evicted.Reason, "%s", w.evicted.Message)
		}
	}
	k.launch(w)
}

// launch starts a worker. The caller holds k.mu.
func (k *Kubelet) launch(w *worker) {
	uid := w.pod.UID
	k.workers[uid] = w
	ctx := k.ctx
	k.wg.Go(func() {
		w.run(ctx)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		p := w.pod // may have been updated since
		w.mu.Unlock()
		k.objects.forget(uid)
		k.status.forget(uid)
		k.metrics.probes.forget(p)
		k.mu.Lock()
		delete(k.workers, uid)
		k.mu.Unlock()
		if pod.Static(p) {
			k.staticGone(p)
		}
	})
}

// lost handles a pod that the API no longer has.
func (k *Kubelet) lost(p *corev1.Pod) {
	if pod.IsMirror(p) {
		k.mirrors.lostMirror(p)
		return
	}
	k.mu.Lock()
	w := k.workers[p.UID]
	k.mu.Unlock()
	if w != nil {
		w.tell(func() { w.removed = true })
	}
}

// watchRuntime wakes the workers of pods for which the runtime reports events. It also wakes all workers periodically,
// in case an event was lost. If the runtime reports no events, it wakes them every second.
func (k *Kubelet) watchRuntime(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan error, 1)
	listen := func() { wg.Go(func() { ended <- k.runtime.Events(ctx, k.poke) }) }
	listen()
	tick := time.NewTicker(relist)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			k.pokeAll()
		case err := <-ended:
			if errors.Is(err, cri.ErrNoEvents) {
				k.env.Log.Info("the runtime tells of no changes: asking it every second")
				tick.Reset(time.Second)
				continue
			}
			if ctx.Err() == nil {
				k.env.Log.Warn("the runtime's events ended; listening again", "error", err)
			}
			if !pause(ctx, 500*time.Millisecond) {
				return ctx.Err()
			}
			listen()
			k.pokeAll() // also for a runtime whose event stream repeatedly ends before it is known to work
		}
	}
}

// poke wakes the worker of a pod to observe the runtime. An empty uid wakes all workers.
func (k *Kubelet) poke(uid string) {
	if uid == "" {
		k.pokeAll()
		return
	}
	k.mu.Lock()
	w := k.workers[types.UID(uid)]
	k.mu.Unlock()
	if w != nil {
		w.tell(func() { w.dirty = true })
	}
}

func (k *Kubelet) pokeAll() {
	k.mu.Lock()
	all := make([]*worker, 0, len(k.workers))
	for _, w := range k.workers {
		all = append(all, w)
	}
	k.mu.Unlock()
	for _, w := range all {
		w.tell(func() { w.dirty = true })
	}
}

// changed wakes the worker of a pod that uses an API object that has changed.
func (k *Kubelet) changed(uid types.UID) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w != nil {
		w.tell(func() { w.refresh, w.hurry = true, true })
	}
}

// relist is how often all pods are observed even though the runtime reports events.
const relist = 5 * time.Minute
