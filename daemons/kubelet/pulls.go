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
	name, err := image.ParseName(spec.Image)
	if err != nil {
		return nil, &failure{reason: "ErrImagePull", message: err.Error(), image: spec.Image}
	}
	credentials, err := w.credentials(ctx, p, name)
	if err != nil {
		k.containerEvent(p, spec, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", spec.Image, err)
		return nil, &failure{reason: "ErrImagePull", message: err.Error(), image: spec.Image}
	}
	k.containerEvent(p, spec, corev1.EventTypeNormal, "Pulling", "Pulling image %q", spec.Image)
	began := time.Now()
	if err := k.pulls.pull(ctx, spec.Image, credentials, box); err != nil {
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

// credentials returns the credentials to try for an image, from the pod's pull secrets.
func (w *worker) credentials(ctx context.Context, p *corev1.Pod, name image.Name) ([]image.Credential, error) {
	var secrets []*corev1.Secret
	for _, ref := range p.Spec.ImagePullSecrets {
		s, err := w.k.objects.Secret(ctx, p.Namespace, ref.Name)
		if err != nil {
			w.k.event(p, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name)
			continue
		}
		secrets = append(secrets, s)
	}
	ring, err := image.NewKeyring(secrets)
	if err != nil {
		return nil, err
	}
	return ring.Lookup(name), nil
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

func (q *puller) pull(ctx context.Context, name string, credentials []image.Credential, box *criapi.PodSandboxConfig) error {
	key := name
	for _, c := range credentials {
		key += "\x00" + c.Username + "\x00" + c.Password
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
			one.err = q.try(ctx, name, credentials, box)
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
func (q *puller) try(ctx context.Context, name string, credentials []image.Credential, box *criapi.PodSandboxConfig) (err error) {
	if q.turn != nil {
		select {
		case q.turn <- struct{}{}:
			defer func() { <-q.turn }()
		case <-ctx.Done():
			return fmt.Errorf("wait for another image: %w", status.FromContextError(ctx.Err()).Err())
		}
	}
	if len(credentials) == 0 {
		_, err = q.images.PullImage(ctx, name, nil, box)
		return err
	}
	for _, c := range credentials {
		if _, err = q.images.PullImage(ctx, name, c.Auth(), box); err == nil {
			return nil
		}
	}
	return err
}
