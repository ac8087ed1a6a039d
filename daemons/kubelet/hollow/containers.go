package hollow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
)

type container struct {
	id, sandbox string
	config      *runtime.ContainerConfig
	state       runtime.ContainerState
	created     time.Time
	started     time.Time
	finished    time.Time
	code        int32
	reason      string
	ended       chan struct{}
	timer       *time.Timer
}

// CreateContainer implements cri.Runtime.
func (r *Runtime) CreateContainer(
	_ context.Context,
	box string,
	config *runtime.ContainerConfig,
	_ *runtime.PodSandboxConfig,
) (string, error) {
	if err := r.countCall("CreateContainer"); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.sandboxes[box]
	if b == nil || !b.ready {
		return "", notFound("ready sandbox", box)
	}
	c := &container{
		id:      r.newID(),
		sandbox: box,
		config:  storedConfig(config),
		created: time.Now(),
		ended:   make(chan struct{}),
	}
	r.containers[c.id] = c
	r.notify(b)
	return c.id, nil
}

// storedConfig returns the parts of a container's configuration that are read later. It drops the environment to save
// memory, because that has seven variables for each service of the namespace.
func storedConfig(c *runtime.ContainerConfig) *runtime.ContainerConfig {
	return &runtime.ContainerConfig{
		Metadata:    c.Metadata,
		Image:       c.Image,
		Command:     c.Command,
		Args:        c.Args,
		Mounts:      c.Mounts,
		Labels:      c.Labels,
		Annotations: c.Annotations,
		LogPath:     c.LogPath,
		Linux:       c.Linux,
	}
}

// StartContainer implements cri.Runtime.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	if err := r.countCall("StartContainer"); err != nil {
		return err
	}
	finite := r.isFinite(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	if c.state != runtime.ContainerState_CONTAINER_CREATED {
		return status.Errorf(codes.FailedPrecondition, "container %q has been started before", id)
	}
	c.state, c.started = runtime.ContainerState_CONTAINER_RUNNING, time.Now()
	r.writeLog(c, "started")
	exit := r.Exit
	if exit == nil {
		exit = commandExit
	}
	after, code, ok := exit(c.config)
	if !ok && finite && !staysUp(c.config) {
		after, code, ok = FiniteFor, 0, true
	}
	if ok {
		c.timer = time.AfterFunc(after, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.endContainer(c, code, "")
		})
	}
	r.notify(r.sandboxes[c.sandbox])
	return nil
}

// isFinite calls IsFinite for a container. It holds no lock during the call, because IsFinite takes other locks.
func (r *Runtime) isFinite(id string) bool {
	r.mu.Lock()
	c := r.containers[id]
	r.mu.Unlock()
	return c != nil && r.IsFinite != nil &&
		r.IsFinite(c.config.Labels[cri.LabelPodUID], c.config.GetMetadata().GetName())
}

// commandWords returns a container's command without a leading shell.
func commandWords(c *runtime.ContainerConfig) []string {
	words := strings.Fields(strings.Join(append(append([]string{}, c.Command...), c.Args...), " "))
	if len(words) > 1 && (words[0] == "sh" || words[0] == "/bin/sh") {
		words = words[2:]
	}
	return words
}

// staysUp reports whether a command runs until it is stopped.
func staysUp(c *runtime.ContainerConfig) bool {
	words := commandWords(c)
	return len(words) > 0 && (filepath.Base(words[0]) == "sleep" || filepath.Base(words[0]) == "pause")
}

// commandExit interprets the few commands by which tests and demonstrations end a container. It returns the delay and
// the exit code.
func commandExit(c *runtime.ContainerConfig) (time.Duration, int32, bool) {
	words := commandWords(c)
	if len(words) == 0 {
		return 0, 0, false
	}
	argument := 0.0
	if len(words) > 1 {
		argument, _ = strconv.ParseFloat(words[1], 64)
	}
	switch filepath.Base(words[0]) {
	case "true":
		return 0, 0, true
	case "false":
		return 0, 1, true
	case "exit":
		return 0, int32(argument), true
	case "sleep":
		return time.Duration(argument * float64(time.Second)), 0, argument > 0 && argument < 86400
	}
	return 0, 0, false
}

// endContainer ends a running container. The caller holds mu.
func (r *Runtime) endContainer(c *container, code int32, reason string) {
	if c.state != runtime.ContainerState_CONTAINER_RUNNING {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	cpu, _ := c.usage(time.Now())
	r.ended += cpu
	c.state, c.finished, c.code, c.reason = runtime.ContainerState_CONTAINER_EXITED, time.Now(), code, reason
	if reason == "" && code != 0 {
		c.reason = "Error"
	} else if reason == "" {
		c.reason = "Completed"
	}
	r.writeLog(c, fmt.Sprintf("ended with %d", code))
	close(c.ended)
	r.notify(r.sandboxes[c.sandbox])
}

// writeLog appends a line to a container's log, if the configuration has a log path.
func (r *Runtime) writeLog(c *container, line string) {
	box := r.sandboxes[c.sandbox]
	if box == nil || box.config.LogDirectory == "" || c.config.LogPath == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(box.config.LogDirectory, c.config.LogPath), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o640)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s stdout F hollow container %s\n", time.Now().UTC().Format(time.RFC3339Nano), line)
}

// Crash ends a running container of a pod as if its process had exited. It reports whether there was such a container.
func (r *Runtime) Crash(podName, containerName string, code int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.state == runtime.ContainerState_CONTAINER_RUNNING && c.config.Labels[cri.LabelPodName] == podName &&
			c.config.GetMetadata().GetName() == containerName {
			r.endContainer(c, code, "")
			return true
		}
	}
	return false
}

// StopContainer implements cri.Runtime.
func (r *Runtime) StopContainer(_ context.Context, id string, _ time.Duration) error {
	if err := r.countCall("StopContainer"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.endContainer(c, 0, "")
	}
	return nil
}

// RemoveContainer implements cri.Runtime.
func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	if err := r.countCall("RemoveContainer"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.endContainer(c, 137, "Error")
		delete(r.containers, id)
		r.notify(r.sandboxes[c.sandbox])
	}
	return nil
}

// ListContainers implements cri.Runtime.
func (r *Runtime) ListContainers(_ context.Context, f *runtime.ContainerFilter) ([]*runtime.Container, error) {
	if err := r.countCall("ListContainers"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtime.Container
	for _, c := range r.containers {
		if matches(c.config.Labels, f.GetLabelSelector()) {
			list = append(
				list,
				&runtime.Container{
					Id:           c.id,
					PodSandboxId: c.sandbox,
					Metadata:     c.config.Metadata,
					Image:        c.config.Image,
					ImageRef:     c.config.Image.GetImage(),
					ImageId:      c.config.Image.GetImage(),
					State:        c.state,
					CreatedAt:    c.created.UnixNano(),
					Labels:       c.config.Labels,
					Annotations:  c.config.Annotations,
				},
			)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Id < list[j].Id })
	return list, nil
}

// ContainerStatus implements cri.Runtime.
func (r *Runtime) ContainerStatus(_ context.Context, id string) (*runtime.ContainerStatus, error) {
	if err := r.countCall("ContainerStatus"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound("container", id)
	}
	s := &runtime.ContainerStatus{
		Id: id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created.UnixNano(),
		Image: &runtime.ImageSpec{
			Image: c.config.Image.GetUserSpecifiedImage(),
		}, ImageRef: c.config.Image.GetImage(), ImageId: c.config.Image.GetImage(),
		Resources: &runtime.ContainerResources{Linux: c.config.GetLinux().GetResources()},
		ExitCode:  c.code, Reason: c.reason, Labels: c.config.Labels, Annotations: c.config.Annotations,
		Mounts: c.config.Mounts, LogPath: c.config.LogPath,
	}
	if !c.started.IsZero() {
		s.StartedAt = c.started.UnixNano()
	}
	if !c.finished.IsZero() {
		s.FinishedAt = c.finished.UnixNano()
	}
	return s, nil
}

// UpdateContainerResources implements cri.Runtime.
func (r *Runtime) UpdateContainerResources(
	_ context.Context,
	id string,
	resources *runtime.LinuxContainerResources,
) error {
	if err := r.countCall("UpdateContainerResources"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil || c.state != runtime.ContainerState_CONTAINER_RUNNING {
		return notFound("running container", id)
	}
	c.config.Linux = &runtime.LinuxContainerConfig{
		Resources:       resources,
		SecurityContext: c.config.GetLinux().GetSecurityContext(),
	}
	r.notify(r.sandboxes[c.sandbox])
	return nil
}
