package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/image"
)

// podImages gets the images of pods.
type podImages struct{ k *Kubelet }

// ensureImage ensures that the node has a container's image, according to the pull policy, and that the pod may use it.
func (m podImages) ensureImage(ctx context.Context, p *corev1.Pod, spec *corev1.Container,
	box *criapi.PodSandboxConfig) (*criapi.Image, error) {
	k := m.k
	name, err := image.ParseName(spec.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %s", spec.Image, err)
		k.events.recordContainer(p, spec, corev1.EventTypeWarning, "InspectFailed", "%s", message)
		k.events.recordContainer(p, spec, corev1.EventTypeWarning, "Failed", "Error: InvalidImageName")
		return nil, &startError{reason: "InvalidImageName", message: message}
	}
	current, err := k.runtime.ImageStatus(ctx, spec.Image)
	if err != nil {
		return nil, &startError{reason: "ImageInspectError", message: cri.Message(err), image: spec.Image}
	}
	never := func(format string) error {
		message := fmt.Sprintf(format, spec.Image)
		k.events.recordContainer(p, spec, corev1.EventTypeWarning, "ErrImageNeverPull", "%s", message)
		return &startError{reason: "ErrImageNeverPull", message: message, canRetrySoon: true}
	}
	credentials := sync.OnceValues(func() ([]image.Credential, error) { return m.credentials(ctx, p, name) })
	switch {
	case current == nil && spec.ImagePullPolicy == corev1.PullNever:
		return nil, never("Container image %q is not present with pull policy of Never")
	case current != nil && spec.ImagePullPolicy != corev1.PullAlways:
		usable, err := k.pullRecords.CanUse(spec.Image, current.Id, credentials)
		if err != nil {
			k.env.Log.Warn("verify that a pod may use an image", "pod", podName(p), "image", spec.Image, "error", err)
		}
		if usable {
			k.events.recordContainer(p, spec, corev1.EventTypeNormal, "Pulled",
				"Container image %q already present on machine and can be accessed by the pod", spec.Image)
			return current, nil
		}
		if spec.ImagePullPolicy == corev1.PullNever {
			return nil, never(
				"Container image %q is present with pull policy of Never but does not have the proper credentials")
		}
	}
	k.events.recordContainer(p, spec, corev1.EventTypeNormal, "Pulling", "Pulling image %q", spec.Image)
	start := time.Now()
	current, err = m.pullImage(ctx, spec.Image, credentials, box)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		k.events.recordContainer(p, spec, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", spec.Image,
			cri.Message(err))
		return nil, &startError{reason: "ErrImagePull", message: cri.Message(err), image: spec.Image}
	}
	took := time.Since(start).Round(time.Millisecond)
	k.events.recordContainer(p, spec, corev1.EventTypeNormal, "Pulled",
		"Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.",
		spec.Image, took, took, current.Size)
	return current, nil
}

// pullImage pulls an image with a pod's credentials, and records which of them succeeded.
func (m podImages) pullImage(ctx context.Context, name string, credentials func() ([]image.Credential, error),
	box *criapi.PodSandboxConfig) (current *criapi.Image, err error) {
	k := m.k
	offered, err := credentials()
	if err != nil {
		return nil, err
	}
	if err := k.pullRecords.Begin(name); err != nil {
		return nil, err
	}
	var with *image.Credential
	defer func() {
		ref := ""
		if err == nil {
			ref = current.Id
		}
		if err := k.pullRecords.End(name, ref, with); err != nil {
			k.env.Log.Warn("record who may use an image", "image", name, "error", err)
		}
	}()
	if with, err = k.puller.pull(ctx, name, offered, box); err != nil {
		return nil, err
	}
	if current, err = k.runtime.ImageStatus(ctx, name); err != nil {
		return nil, err
	}
	if current == nil {
		return nil, fmt.Errorf("image %q is not there after it was pulled", name)
	}
	return current, nil
}

// ensureVolumeImage ensures that the node has the image that a container mounts as a volume, according to the volume's
// pull policy.
func (m podImages) ensureVolumeImage(ctx context.Context, p *corev1.Pod, spec *corev1.Container, volume string,
	box *criapi.PodSandboxConfig) error {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Name != volume || v.Image == nil {
			continue
		}
		policy := v.Image.PullPolicy
		if policy == "" {
			policy = defaultPullPolicy(v.Image.Reference)
		}
		_, err := m.ensureImage(ctx, p,
			&corev1.Container{Name: spec.Name, Image: v.Image.Reference, ImagePullPolicy: policy},
			box)
		return err
	}
	return nil
}

// mountedImage returns the image that a pod mounts as the named volume, or "" for any other volume.
func mountedImage(p *corev1.Pod, name string) string {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Name == name && v.Image != nil {
			return v.Image.Reference
		}
	}
	return ""
}

// credentials returns the credentials to try for an image: first those of the pod's pull secrets, then the node's.
func (m podImages) credentials(ctx context.Context, p *corev1.Pod, name image.Name) ([]image.Credential, error) {
	var secrets []*corev1.Secret
	for _, ref := range p.Spec.ImagePullSecrets {
		s, err := m.k.objects.Secret(ctx, p.Namespace, ref.Name)
		if err != nil {
			m.k.events.record(p, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
				ref.Name)
			continue
		}
		secrets = append(secrets, s)
	}
	ring, err := image.NewKeyring(secrets)
	if err != nil {
		return nil, err
	}
	return append(ring.Lookup(name), m.k.nodeCredentials.Lookup(ctx, name)...), nil
}

// puller pulls images. Pods that need the same image with the same credentials share one pull.
type puller struct {
	images  cri.Images
	serial  chan struct{} // held while pulling if pulls are serialized; nil otherwise
	mu      sync.Mutex
	running map[string]*runningPull
}

type runningPull struct {
	done       chan struct{}
	credential *image.Credential // nil: none was needed
	err        error
}

// newPuller returns a puller. If serial is set, it pulls one image at a time.
func newPuller(images cri.Images, serial bool) *puller {
	q := &puller{images: images, running: map[string]*runningPull{}}
	if serial {
		q.serial = make(chan struct{}, 1)
	}
	return q
}

// pull pulls an image and returns the credential that succeeded, or nil if none was needed.
func (q *puller) pull(ctx context.Context, name string, credentials []image.Credential,
	box *criapi.PodSandboxConfig) (*image.Credential, error) {
	key := name
	for _, c := range credentials {
		key += "\x00" + c.Username + "\x00" + c.Password
	}
	for {
		q.mu.Lock()
		one, ok := q.running[key]
		if !ok {
			one = &runningPull{done: make(chan struct{})}
			q.running[key] = one
		}
		q.mu.Unlock()
		if !ok {
			one.credential, one.err = q.tryCredentials(ctx, name, credentials, box)
			q.mu.Lock()
			delete(q.running, key)
			q.mu.Unlock()
			close(one.done)
			return one.credential, one.err
		}
		select {
		case <-one.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		// If the pull was canceled with its pod, the pods that waited for it pull themselves.
		if status.Code(errors.Unwrap(one.err)) != codes.Canceled {
			return one.credential, one.err
		}
	}
}

// tryCredentials pulls an image with one credential after the other until one succeeds.
func (q *puller) tryCredentials(ctx context.Context, name string, credentials []image.Credential,
	box *criapi.PodSandboxConfig) (with *image.Credential, err error) {
	if q.serial != nil {
		select {
		case q.serial <- struct{}{}:
			defer func() { <-q.serial }()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another image: %w", status.FromContextError(ctx.Err()).Err())
		}
	}
	if len(credentials) == 0 {
		_, err = q.images.PullImage(ctx, name, nil, box)
		return nil, err
	}
	for _, c := range credentials {
		if _, err = q.images.PullImage(ctx, name, c.Auth(), box); err == nil {
			return &c, nil
		}
	}
	return nil, err
}
