package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"

	"clusterctl/kube/kubernetes"
)

// Lead runs active while this process holds the lease kube-system/name. It returns when ctx ends, when active returns,
// or when the lease is lost. A lost lease is an error, so that the process ends and is started again. The lease is
// released only after active has returned, so that never two processes are active.
func Lead(
	ctx context.Context,
	client kubernetes.Interface,
	name string,
	log *slog.Logger,
	active func(context.Context) error,
) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name for the lease %s: %w", name, err)
	}
	c := newCandidate(client, name, host+"_"+string(uuid.NewUUID()), log)
	if !c.acquire(ctx) {
		return nil // a standby that is stopped has nothing to finish
	}
	log.Info("leading", "lease", name)
	leading, end := context.WithCancel(ctx)
	defer end()
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost := make(chan bool, 1)
	go func() {
		lost <- !c.renew(renewing)
		end()
	}()
	err = active(leading)
	stop()
	isOver := <-lost
	c.release(context.WithoutCancel(ctx))
	if isOver {
		return fmt.Errorf("lost the lease %s", name)
	}
	return err
}
