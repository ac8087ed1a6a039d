// Command containerd is the pinned version of containerd with support for systemd's watchdog. Upstream only notifies
// systemd when it is ready, so a containerd that hangs would never be restarted.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/cmd/containerd/command"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"clusterctl/daemons/run/manager"
	"clusterctl/daemons/run/watchdog"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); watchReadiness(ctx) }()
	err := command.App().Run(ctx, os.Args)
	stop()
	<-ended
	if err != nil {
		fmt.Fprintln(os.Stderr, "containerd:", err)
		os.Exit(1)
	}
}

// socket is containerd's default address.
const socket = "unix:///run/containerd/containerd.sock"

// watchReadiness notifies systemd's watchdog whenever containerd reports on its socket that it is serving, until ctx
// ends.
func watchReadiness(ctx context.Context) {
	if manager.Watchdog() == 0 || !manager.IsAvailable() {
		return // systemd has no watchdog for this unit
	}
	conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, "containerd: watch over itself:", err)
		return
	}
	defer conn.Close()
	health := grpc_health_v1.NewHealthClient(conn)
	watchdog.Watch(ctx, func(message string) { _ = manager.Send(message) }, func(ctx context.Context) error {
		answer, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil && answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			err = fmt.Errorf("health is %s", answer.Status)
		}
		return err
	})
}
