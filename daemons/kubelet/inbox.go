package kubelet

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/pod"
)

// inbox holds the inputs that other goroutines pass to a worker, and the parts of the worker's state that they may
// read. mu guards the fields after it.
type inbox struct {
	wake chan struct{} // signals news

	mu               sync.Mutex
	pod              *corev1.Pod // with the granted size
	size             podSize
	removed          bool
	hasRuntimeChange bool // the runtime has reported a change
	refreshRequested bool // volumes must be refreshed
	needsRetry       bool // an object that the volumes wait for has changed: retry at once
	evicted          *pod.End
	evictedAt        time.Time            // when it was evicted because of a shortage
	discardRequested bool                 // the machine needs the disk space of the ended containers
	probes           map[string]pod.Probe // by container ID
	containers       []pod.Container      // containers and released are changed only by the worker's goroutine
	released         bool
}

// update changes the inbox and wakes the worker.
func (b *inbox) update(change func()) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// needsObserve reports whether the runtime has to be asked about the pod.
func (b *inbox) needsObserve() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hasRuntimeChange
}

// podSize is the size of a pod. It is guarded by the inbox's mu.
type podSize struct {
	desired   *corev1.Pod    // as its source has it
	allocated pod.Allocation // size granted to the containers
	resize    pod.Resize     // state of a pending or failed resize
	limits    cgroup.Limits  // of the pod's cgroup, as last written; changed by the running step
}
