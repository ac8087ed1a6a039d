package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lead runs active while this process holds the lease kube-system/name, and
// returns when ctx ends or the lease is lost; a lost lease is an error, so that the
// process ends and starts afresh. The lease is let go on a clean stop.
func Lead(ctx context.Context, client kubernetes.Interface, name string, log *slog.Logger, active func(context.Context) error) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name for the lease %s: %w", name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
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
			OnStartedLeading: func(ctx context.Context) {
				log.Info("leading", "lease", name)
				result <- active(ctx)
				cancel()
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(id string) { log.Info("leader elected", "lease", name, "leader", id) },
		},
	})
	if err != nil {
		return fmt.Errorf("set up leader election %s: %w", name, err)
	}
	outer := ctx
	elector.Run(ctx)
	lost := outer.Err() == nil
	cancel()
	select {
	case err = <-result:
	case <-time.After(5 * time.Second):
		// never led, or active did not stop: the process ends either way
	}
	if lost {
		return fmt.Errorf("lost the lease %s", name)
	}
	return err
}
