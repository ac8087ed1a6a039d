package local

import (
	"context"
	"fmt"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Containers counts containerd's tasks.
func (h *Host) Containers(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, ctx, err := containerd(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	return count(ctx, conn)
}

func count(ctx context.Context, conn *grpc.ClientConn) (int, error) {
	list, err := tasksapi.NewTasksClient(conn).List(ctx, &tasksapi.ListTasksRequest{})
	if status.Code(err) == codes.Unavailable { // no runtime, no containers
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list containers: %w", err)
	}
	return len(list.GetTasks()), nil
}

// StopContainers kills every task and deletes it. What pods had mounted stays.
func (h *Host) StopContainers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, ctx, err := containerd(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tasks := tasksapi.NewTasksClient(conn)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := tasks.List(ctx, &tasksapi.ListTasksRequest{})
		if err != nil {
			return fmt.Errorf("list containers: %w", err)
		}
		if len(list.GetTasks()) == 0 {
			return nil
		}
		for _, t := range list.GetTasks() {
			// A task that is gone, or not yet dead, is met again by the next round.
			_, _ = tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: t.GetID(), Signal: uint32(syscall.SIGKILL), All: true})
			_, _ = tasks.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: t.GetID()})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("stop %d containers: %w", len(list.GetTasks()), ctx.Err())
		}
	}
}
