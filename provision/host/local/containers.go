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

// Containers counts containerd's tasks. If containerd does not answer, it counts the shims that are still running.
func (h *Host) Containers(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, ctx, err := containerd(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	tasks, _, err := listTasks(ctx, tasksapi.NewTasksClient(conn))
	if err != nil {
		return 0, err
	}
	shims, _, err := findShims(containerdPath)
	return max(len(tasks), len(shims)), err
}

// listTasks returns the tasks, and reports whether the runtime answers.
func listTasks(ctx context.Context, client tasksapi.TasksClient) (tasks []*tasktypes.Process, exists bool, err error) {
	list, err := client.List(ctx, &tasksapi.ListTasksRequest{})
	if status.Code(err) == codes.Unavailable {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list containers: %w", err)
	}
	return list.GetTasks(), true, nil
}

// shimExitTimeout is how long shims without tasks may take to exit.
const shimExitTimeout = 2 * time.Second

// StopContainers kills and deletes every task, and kills shims that containerd does not stop. It does not unmount the
// pods' volumes.
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
	last := time.Now() // when the last task was seen
	for {
		tasks, exists, err := listTasks(ctx, client)
		if err != nil {
			return err
		}
		for _, t := range tasks {
			// A task that is already gone, or not dead yet, is handled in the next round.
			_, _ = client.Kill(ctx,
				&tasksapi.KillRequest{ContainerID: t.GetID(), Signal: uint32(syscall.SIGKILL), All: true})
			_, _ = client.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: t.GetID()})
			last = time.Now()
		}
		shims, below, err := findShims(containerdPath)
		if err != nil || len(tasks) == 0 && len(shims) == 0 {
			return err
		}
		if len(tasks) == 0 && (!exists || time.Since(last) > shimExitTimeout) {
			if err := killProcesses(append(below, shims...)); err != nil {
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
