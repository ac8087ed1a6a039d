package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lead runs active while this process holds the lease kube-system/name. It returns
// when ctx ends, when active does, or when the lease is lost; a lost lease is an error,
// so that the process ends and starts afresh. The lease is let go only after active has
// returned: never are two active.
func Lead(ctx context.Context, client kubernetes.Interface, name string, log *slog.Logger, active func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name for the lease %s: %w", name, err)
	}
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	t := &term{done: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		Name:            name,
		ReleaseOnCancel: true,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				if !t.begin() {
					return
				}
				defer stop()
				defer close(t.done)
				log.Info("leading", "lease", name)
				leading, cancel := context.WithCancel(leading)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				t.err = active(leading)
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(id string) { log.Info("leader elected", "lease", name, "leader", id) },
		},
	})
	if err != nil {
		return fmt.Errorf("set up leader election %s: %w", name, err)
	}
	// A standby that is told to stop has nothing to finish first.
	defer context.AfterFunc(ctx, func() {
		if t.forgo() {
			stop()
		}
	})()
	elector.Run(electing)
	lost := electing.Err() == nil
	if !t.forgo() {
		<-t.done
	}
	if lost {
		return fmt.Errorf("lost the lease %s", name)
	}
	return t.err
}

// term is whether the process has begun to lead; it does so once at most.
type term struct {
	mu    sync.Mutex
	begun bool
	over  bool // it will not begin any more
	done  chan struct{}
	err   error // of what was active, once done
}

func (t *term) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = !t.over
	return t.begun
}

// forgo makes sure that a term that has not begun never does, and says whether so.
func (t *term) forgo() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = t.over || !t.begun
	return t.over
}
