package cri

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/pod"
)

// Observer reads the state of pods from the runtime. It reads an exited container only once, because its state no
// longer changes.
type Observer struct {
	Runtime Runtime
	// Message returns a container's termination message; nil leaves messages out.
	Message func(s *runtime.ContainerStatus) string
}

// Pod returns the sandboxes and containers of one pod, newest first. exited caches the exited containers between calls,
// and is updated.
func (o Observer) Pod(
	ctx context.Context,
	uid string,
	exited map[string]pod.Container,
) ([]pod.Sandbox, []pod.Container, error) {
	labels := map[string]string{LabelPodUID: uid}
	boxes, err := o.Runtime.ListPodSandbox(ctx, &runtime.PodSandboxFilter{LabelSelector: labels})
	if err != nil {
		return nil, nil, err
	}
	list, err := o.Runtime.ListContainers(ctx, &runtime.ContainerFilter{LabelSelector: labels})
	if err != nil {
		return nil, nil, err
	}
	var sandboxes []pod.Sandbox
	for _, b := range boxes {
		s := pod.Sandbox{ID: b.Id, Attempt: b.GetMetadata().GetAttempt(), Created: timeOf(b.CreatedAt)}
		if b.State == runtime.PodSandboxState_SANDBOX_READY {
			st, err := o.Runtime.PodSandboxStatus(ctx, b.Id)
			if IsNotFound(err) {
				continue
			} else if err != nil {
				return nil, nil, err
			}
			s.Ready = st.State == runtime.PodSandboxState_SANDBOX_READY
			s.HostNetwork = st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtime.NamespaceMode_NODE
			if ip := st.GetNetwork().GetIp(); ip != "" {
				s.IPs = append(s.IPs, ip)
			}
			for _, more := range st.GetNetwork().GetAdditionalIps() {
				s.IPs = append(s.IPs, more.Ip)
			}
		}
		sandboxes = append(sandboxes, s)
	}
	alive := map[string]bool{}
	var containers []pod.Container
	for _, c := range list {
		alive[c.Id] = true
		if cached, ok := exited[c.Id]; ok {
			containers = append(containers, cached)
			continue
		}
		st, err := o.Runtime.ContainerStatus(ctx, c.Id)
		if IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, nil, err
		}
		seen := o.containerOf(c.PodSandboxId, st)
		if seen.State == pod.Exited {
			exited[c.Id] = seen
		}
		containers = append(containers, seen)
	}
	for id := range exited {
		if !alive[id] {
			delete(exited, id)
		}
	}
	slices.SortFunc(sandboxes, func(a, b pod.Sandbox) int { return b.Created.Compare(a.Created) })
	slices.SortFunc(containers, func(a, b pod.Container) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.Created.Compare(a.Created))
	})
	return sandboxes, containers, nil
}

func (o Observer) containerOf(sandbox string, st *runtime.ContainerStatus) pod.Container {
	c := pod.Container{
		ID: st.Id, Name: st.GetMetadata().GetName(), SandboxID: sandbox, Attempt: st.GetMetadata().GetAttempt(),
		Created: timeOf(st.CreatedAt), Started: timeOf(st.StartedAt), Finished: timeOf(st.FinishedAt),
		ExitCode: st.ExitCode, Reason: st.Reason, Message: st.Message,
		Image: st.GetImage().GetImage(), ImageID: st.ImageRef, Hash: st.Annotations[annotationHash],
	}
	if l := st.GetResources().GetLinux(); l != nil {
		c.Size = &pod.Size{
			CPUShares: l.CpuShares,
			CPUQuota:  l.CpuQuota,
			CPUPeriod: l.CpuPeriod,
			Memory:    l.MemoryLimitInBytes,
		}
	}
	if u := st.GetUser().GetLinux(); u != nil {
		c.User = &corev1.ContainerUser{
			Linux: &corev1.LinuxContainerUser{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups},
		}
	}
	if st.StopSignal != runtime.Signal_SIGNAL_RUNTIME_DEFAULT {
		signal := corev1.Signal(strings.TrimPrefix(st.StopSignal.String(), "SIGNAL_"))
		c.StopSignal = &signal
	}
	for _, m := range st.Mounts {
		if m.RecursiveReadOnly {
			c.ReadOnly = append(c.ReadOnly, filepath.Clean(m.ContainerPath))
		}
	}
	switch st.State {
	case runtime.ContainerState_CONTAINER_CREATED:
		c.State = pod.Created
	case runtime.ContainerState_CONTAINER_RUNNING:
		c.State = pod.Running
	case runtime.ContainerState_CONTAINER_EXITED:
		c.State = pod.Exited
		if o.Message != nil {
			if m := o.Message(st); m != "" {
				c.Message = m
			}
		}
	default:
		c.State = pod.Unknown
	}
	return c
}

func timeOf(nanos int64) time.Time {
	if nanos <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

const maxMessageBytes = 4096

// TerminationMessage returns the content of a container's termination message file. If the file is empty, the policy
// allows it and the container failed, it returns the end of the log.
func TerminationMessage(s *runtime.ContainerStatus, tail func(path string, lines, bytes int) string) string {
	path := s.Annotations[annotationMessagePath]
	for _, m := range s.Mounts {
		if path == "" || m.ContainerPath != path {
			continue
		}
		if data, err := readTail(m.HostPath, maxMessageBytes); err == nil && len(data) > 0 {
			return string(data)
		}
	}
	if s.Annotations[annotationPolicy] == "FallbackToLogsOnError" && s.ExitCode != 0 && tail != nil {
		return tail(s.LogPath, 80, 2048)
	}
	return ""
}

func readTail(path string, limit int64) ([]byte, error) {
	// The container could have replaced the file by a link or a pipe if it is on a volume.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	from := max(info.Size()-limit, 0)
	data := make([]byte, info.Size()-from)
	n, err := f.ReadAt(data, from)
	if n == 0 {
		return nil, err
	}
	return data[:n], nil
}

// restartCount returns an attempt number in the form of upstream's restart count annotation.
func restartCount(attempt uint32) string { return strconv.FormatUint(uint64(attempt), 10) }
