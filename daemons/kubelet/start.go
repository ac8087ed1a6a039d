package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/probe"
)

// start brings one container up: image, environment, mounts, create, start, and
// what is to be done right after.
func (w *worker) start(ctx context.Context, f *pod.Facts, step pod.Step) error {
	k, p := w.k, f.Pod
	spec := pod.Find(p, step.Container)
	if pod.Ephemeral(p, spec.Name) {
		if end := pod.RefuseContainer(spec); end != nil {
			k.containerEvent(p, spec, corev1.EventTypeWarning, end.Reason, "%s", end.Message)
			return &failure{reason: "CreateContainerConfigError", message: end.Message}
		}
	}
	if err := w.widen(f); err != nil {
		return err
	}
	box := w.sandboxConfig(p, f.Sandboxes[0].Attempt)
	image, err := w.image(ctx, p, spec, box)
	if err != nil {
		return err
	}
	for _, m := range spec.VolumeMounts {
		if err := w.volumeImage(ctx, p, spec, m.Name, box); err != nil {
			return err
		}
	}
	config, err := w.containerConfig(ctx, f, spec, step.Attempt, image)
	if err != nil {
		k.containerEvent(p, spec, corev1.EventTypeWarning, "Failed", "Error: %s", err)
		return &failure{reason: "CreateContainerConfigError", message: err.Error(), quick: true}
	}
	if err := seeTarget(config, f, spec.Name); err != nil {
		return &failure{reason: "CreateContainerConfigError", message: err.Error(), quick: true}
	}
	id, err := k.runtime.CreateContainer(ctx, step.SandboxID, config, box)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.containerEvent(p, spec, corev1.EventTypeWarning, "Failed", "Error: %s", cri.Message(err))
		return &failure{reason: "CreateContainerError", message: cri.Message(err)}
	}
	k.containerEvent(p, spec, corev1.EventTypeNormal, "Created", "Created container: %s", spec.Name)
	if err := k.runtime.StartContainer(ctx, id); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.containerEvent(p, spec, corev1.EventTypeWarning, "Failed", "Error: %s", cri.Message(err))
		return &failure{reason: "RunContainerError", message: cri.Message(err)}
	}
	k.containerEvent(p, spec, corev1.EventTypeNormal, "Started", "Started container %s", spec.Name)
	k.linkLog(p, spec.Name, step.Attempt, id)
	if l := spec.Lifecycle; l != nil && l.PostStart != nil {
		if err := w.hook(ctx, f, spec, id, l.PostStart); err != nil && ctx.Err() == nil {
			k.containerEvent(p, spec, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: %s", err)
			k.containerEvent(p, spec, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
			if err := w.kill(ctx, f, spec.Name, id, pod.Grace(f)); err != nil {
				return err
			}
			return &failure{reason: "PostStartHookError", message: err.Error()}
		}
	}
	return nil
}

// seeTarget lets an ephemeral container see the processes of the one it looks into.
func seeTarget(config *criapi.ContainerConfig, f *pod.Facts, name string) error {
	target := pod.Target(f.Pod, name)
	if target == "" {
		return nil
	}
	for _, c := range f.Containers {
		if c.Name == target && c.State == pod.Running {
			n := config.Linux.SecurityContext.NamespaceOptions
			n.Pid, n.TargetId = criapi.NamespaceMode_TARGET, c.ID
			return nil
		}
	}
	return fmt.Errorf("unable to find target container %q: it does not run", target)
}

// image makes sure that a container's image is there, by its pull policy.
func (w *worker) image(ctx context.Context, p *corev1.Pod, spec *corev1.Container, box *criapi.PodSandboxConfig) (*criapi.Image, error) {
	k := w.k
	have, err := k.runtime.ImageStatus(ctx, spec.Image)
	if err != nil {
		return nil, &failure{reason: "ImageInspectError", message: cri.Message(err), image: spec.Image}
	}
	switch {
	case have != nil && spec.ImagePullPolicy != corev1.PullAlways:
		k.containerEvent(p, spec, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", spec.Image)
		return have, nil
	case spec.ImagePullPolicy == corev1.PullNever:
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", spec.Image)
		k.containerEvent(p, spec, corev1.EventTypeWarning, "ErrImageNeverPull", "%s", message)
		return nil, &failure{reason: "ErrImageNeverPull", message: message, quick: true}
	}
	k.containerEvent(p, spec, corev1.EventTypeNormal, "Pulling", "Pulling image %q", spec.Image)
	began := time.Now()
	if err := k.pulls.pull(ctx, spec.Image, w.credentials(ctx, p, spec.Image), box); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		k.containerEvent(p, spec, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", spec.Image, cri.Message(err))
		return nil, &failure{reason: "ErrImagePull", message: cri.Message(err), image: spec.Image}
	}
	took := time.Since(began).Round(time.Millisecond)
	have, err = k.runtime.ImageStatus(ctx, spec.Image)
	if err != nil || have == nil {
		return nil, &failure{reason: "ImageInspectError", message: fmt.Sprintf("image %q is not there after it was pulled", spec.Image), image: spec.Image}
	}
	k.containerEvent(p, spec, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.",
		spec.Image, took, took, have.Size)
	return have, nil
}

// volumeImage makes sure that the image that a container mounts as a volume is there, by the volume's pull policy.
func (w *worker) volumeImage(ctx context.Context, p *corev1.Pod, spec *corev1.Container, volume string, box *criapi.PodSandboxConfig) error {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Name != volume || v.Image == nil {
			continue
		}
		policy := v.Image.PullPolicy
		if policy == "" {
			policy = usualPolicy(v.Image.Reference)
		}
		_, err := w.image(ctx, p, &corev1.Container{Name: spec.Name, Image: v.Image.Reference, ImagePullPolicy: policy}, box)
		return err
	}
	return nil
}

// credentials returns what the pod's pull secrets have for an image's registry.
func (w *worker) credentials(ctx context.Context, p *corev1.Pod, image string) []*criapi.AuthConfig {
	var found []*criapi.AuthConfig
	for _, ref := range p.Spec.ImagePullSecrets {
		s, err := w.k.objects.Secret(ctx, p.Namespace, ref.Name)
		if err != nil {
			w.k.event(p, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name)
			continue
		}
		var file struct {
			Auths map[string]struct{ Username, Password, Auth string }
		}
		if data, ok := s.Data[corev1.DockerConfigJsonKey]; ok {
			_ = json.Unmarshal(data, &file)
		} else if data, ok := s.Data[corev1.DockerConfigKey]; ok {
			_ = json.Unmarshal(data, &file.Auths)
		}
		for server, a := range file.Auths {
			host := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://"), "/")
			host = strings.TrimSuffix(strings.TrimSuffix(host, "/v1"), "/v2")
			if strings.HasPrefix(image, host+"/") || strings.HasSuffix(host, "docker.io") && !strings.Contains(strings.SplitN(image, "/", 2)[0], ".") {
				found = append(found, &criapi.AuthConfig{Username: a.Username, Password: a.Password, Auth: a.Auth})
			}
		}
	}
	return found
}

// containerConfig gathers what a container gets from outside its specification.
func (w *worker) containerConfig(ctx context.Context, f *pod.Facts, spec *corev1.Container, attempt uint32, image *criapi.Image) (*criapi.ContainerConfig, error) {
	k := w.k
	p := f.Pod.DeepCopy()
	now := pod.Status(f)
	p.Status.PodIP, p.Status.PodIPs = now.PodIP, now.PodIPs
	services, err := k.listServices(ctx)
	if err != nil {
		return nil, err
	}
	env, err := cri.Env(forPod(ctx, p.UID), p, spec, k.objects, services, k.nodeFacts())
	if err != nil {
		return nil, err
	}
	mounts, err := k.volumes.Mounts(p, spec, func(s string) (string, error) { return cri.ExpandPath(s, env) }, func() (bool, error) {
		handler, err := w.handler(ctx, p)
		if err != nil {
			return false, err
		}
		return k.runtime.RecursiveReadOnly(ctx, handler)
	})
	if err != nil {
		return nil, err
	}
	devices, err := k.volumes.Devices(p, spec)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, m := range mounts {
		taken[filepath.Clean(m.ContainerPath)] = true
	}
	if !taken["/etc/hosts"] {
		host, domain := hostname(p, k.file.ClusterDomain)
		var ips []string
		for _, ip := range p.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		path, err := k.volumes.WriteHosts(p, host, domain, ips)
		if err != nil {
			return nil, fmt.Errorf("write the pod's hosts file: %w", err)
		}
		mounts = append(mounts, &criapi.Mount{ContainerPath: "/etc/hosts", HostPath: path})
	}
	if path := spec.TerminationMessagePath; path != "" && !taken[filepath.Clean(path)] {
		path, err := k.volumes.TerminationLog(string(p.UID), spec.Name, attempt)
		if err != nil {
			return nil, fmt.Errorf("make the termination log: %w", err)
		}
		mounts = append(mounts, &criapi.Mount{ContainerPath: spec.TerminationMessagePath, HostPath: path})
	}
	if err := k.makeLogDir(filepath.Join(cri.LogDir(k.logRoot, p), spec.Name)); err != nil {
		return nil, fmt.Errorf("make the container's log directory: %w", err)
	}
	return cri.Container(p, spec, w.place(p), cri.Inside{Attempt: attempt, Env: env, Mounts: mounts, Image: image, Devices: k.devices.IDs(p, spec), Volumes: devices})
}

// listServices returns the services for pods' environment, once they are known.
func (k *Kubelet) listServices(ctx context.Context) ([]*corev1.Service, error) {
	select {
	case <-k.synced:
		return k.watches.listServices()
	default:
		// Static pods start without the API.
		return nil, nil
	}
}

// hook carries out a lifecycle handler.
func (w *worker) hook(ctx context.Context, f *pod.Facts, spec *corev1.Container, id string, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		_, stderr, code, err := w.k.runtime.ExecSync(ctx, id, h.Exec.Command, hookTime)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("command '%s' exited with %d: %s", strings.Join(h.Exec.Command, " "), code, stderr)
		}
	case h.HTTPGet != nil:
		return probe.Get(ctx, h.HTTPGet, w.target(f, spec, id))
	case h.Sleep != nil:
		pause(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	default:
		return errors.New("invalid handler: it has none of exec, httpGet and sleep")
	}
	return nil
}

const hookTime = time.Hour

// linkLog makes the name below /var/log/containers by which log collectors find a
// container's log. Where that is not there, they are not either.
func (k *Kubelet) linkLog(p *corev1.Pod, container string, attempt uint32, id string) {
	dir := filepath.Join(filepath.Dir(k.logRoot), "containers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return
	}
	link := filepath.Join(dir, fmt.Sprintf("%s_%s_%s-%s.log", p.Name, p.Namespace, container, id))
	// Relative, so that it leads to the log also where the directory of logs is mounted elsewhere, and when it is served.
	log, err := filepath.Rel(dir, filepath.Join(cri.LogDir(k.logRoot, p), cri.LogPath(container, attempt)))
	if err != nil {
		return
	}
	_ = os.Symlink(log, link)
}

// puller pulls images; pods that want the same one wait for one pull.
type puller struct {
	images cri.Images
	turn   chan struct{} // of the one that may pull, where that is one at a time; nil otherwise
	mu     sync.Mutex
	going  map[string]*pull
}

type pull struct {
	done chan struct{}
	err  error
}

// newPuller returns a puller that pulls several images at once, or one after the other.
func newPuller(images cri.Images, serial bool) *puller {
	q := &puller{images: images, going: map[string]*pull{}}
	if serial {
		q.turn = make(chan struct{}, 1)
	}
	return q
}

func (q *puller) pull(ctx context.Context, image string, auths []*criapi.AuthConfig, box *criapi.PodSandboxConfig) error {
	key := image
	for _, a := range auths {
		key += "\x00" + a.Username + "\x00" + a.Password + "\x00" + a.Auth
	}
	for {
		q.mu.Lock()
		one, ok := q.going[key]
		if !ok {
			one = &pull{done: make(chan struct{})}
			q.going[key] = one
		}
		q.mu.Unlock()
		if !ok {
			one.err = q.try(ctx, image, auths, box)
			q.mu.Lock()
			delete(q.going, key)
			q.mu.Unlock()
			close(one.done)
			return one.err
		}
		select {
		case <-one.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		// When the pod that pulled is given up, those that waited pull themselves.
		if status.Code(errors.Unwrap(one.err)) != codes.Canceled {
			return one.err
		}
	}
}

// try pulls an image with one credential after the other.
func (q *puller) try(ctx context.Context, image string, auths []*criapi.AuthConfig, box *criapi.PodSandboxConfig) (err error) {
	if q.turn != nil {
		select {
		case q.turn <- struct{}{}:
			defer func() { <-q.turn }()
		case <-ctx.Done():
			return fmt.Errorf("wait for another image: %w", status.FromContextError(ctx.Err()).Err())
		}
	}
	if len(auths) == 0 {
		auths = []*criapi.AuthConfig{nil}
	}
	for _, a := range auths {
		if _, err = q.images.PullImage(ctx, image, a, box); err == nil {
			return nil
		}
	}
	return err
}
