package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
)

// findContainer returns the pod and the container that a request names.
func (s *Server) findContainer(r *http.Request, previous bool) (*corev1.Pod, pod.Container, error) {
	p, err := s.findPod(r)
	if err != nil {
		return nil, pod.Container{}, err
	}
	name := r.PathValue("container")
	if pod.Find(p, name) == nil {
		return nil, pod.Container{}, fmt.Errorf("container %q not found in pod %q", name, p.Name)
	}
	_, containers, err := cri.Observer{Runtime: s.Runtime}.Pod(r.Context(), string(p.UID), map[string]pod.Container{})
	if err != nil {
		return nil, pod.Container{}, err
	}
	c, ok := latestAttempt(containers, name, previous)
	switch {
	case !ok && previous:
		return p, c, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
	case !ok:
		return p, c, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.Name, waitingReason(p, name))
	}
	return p, c, nil
}

// latestAttempt returns the newest attempt of a container, or the one before it if previous is set.
func latestAttempt(containers []pod.Container, name string, previous bool) (pod.Container, bool) {
	skip := previous
	for _, c := range containers {
		if c.Name != name || c.State == pod.Created {
			continue
		}
		if skip {
			skip = false
			continue
		}
		return c, true
	}
	return pod.Container{}, false
}

// removedContainer returns an ended container of a pod from the pod's status, when the runtime no longer has the
// container. Its log may still exist.
func removedContainer(p *corev1.Pod, name string, previous bool) (pod.Container, bool) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		ended := c.State.Terminated
		if c.Name != name || ended == nil || previous && c.RestartCount == 0 {
			continue
		}
		attempt := uint32(c.RestartCount)
		if previous {
			attempt--
		}
		_, id, _ := strings.Cut(ended.ContainerID, "://")
		return pod.Container{ID: id, Name: name, Attempt: attempt, State: pod.Exited}, true
	}
	return pod.Container{}, false
}

func waitingReason(p *corev1.Pod, name string) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		if c.Name == name && c.State.Waiting != nil {
			switch c.State.Waiting.Reason {
			case "ErrImagePull", "ImagePullBackOff":
				return "trying and failing to pull image"
			}
			return c.State.Waiting.Reason
		}
	}
	return "ContainerCreating"
}
