package local

import (
	"context"
	"fmt"
	"syscall"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Containers counts containerd's tasks; of one that does not answer, the shims that it left.
func (h *Host) Containers(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, ctx, err := containerd(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	tasks, _, err := running(ctx, tasksapi.NewTasksClient(conn))
	if err != nil {
		return 0, err
	}
	shims, _, err := shims(containerdPath)
	return max(len(tasks), len(shims)), err
}

// running returns the tasks, and whether there is a runtime to be asked.
func running(ctx context.Context, client tasksapi.TasksClient) (tasks []*tasktypes.Process, there bool, err error) {
	list, err := client.List(ctx, &tasksapi.ListTasksRequest{})
	if status.Code(err) == codes.Unavailable {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list containers: %w", err)
	}
	return list.GetTasks(), true, nil
}

// farewell is how long a shim whose tasks are gone is given to go as well.
const farewell = 2 * time.Second

// StopContainers kills every task and deletes it, and ends the shims that nobody asks to. What pods had mounted stays.
func (h *Host) StopContainers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, ctx, err := containerd(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := tasksapi.NewTasksClient(conn)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := time.Now() // when there was a task
	for {
		tasks, there, err := running(ctx, client)
		if err != nil {
			return err
		}
		for _, t := range tasks {
			// A task that is gone, or not yet dead, is met again by the next round.
			_, _ = client.Kill(
				ctx,
				&tasksapi.KillRequest{ContainerID: t.GetID(), Signal: uint32(syscall.SIGKILL), All: true},
			)
			_, _ = client.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: t.GetID()})
			last = time.Now()
		}
		shims, below, err := shims(containerdPath)
		if err != nil || len(tasks) == 0 && len(shims) == 0 {
			return err
		}
		if len(tasks) == 0 && (!there || time.Since(last) > farewell) {
			if err := kill(append(below, shims...)); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("stop %d containers: %w", max(len(tasks), len(shims)), ctx.Err())
		}
	}
}
