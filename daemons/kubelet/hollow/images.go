package hollow

import (
	"context"
	"crypto/sha256"
	"fmt"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *Runtime) newImage(name string) *runtime.Image {
	id := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name)))
	return &runtime.Image{Id: id, RepoTags: []string{name}, Size: 1 << 20, Spec: &runtime.ImageSpec{Image: name}}
}

// ImageStatus implements cri.Images.
func (r *Runtime) ImageStatus(_ context.Context, name string) (*runtime.Image, error) {
	if err := r.countCall("ImageStatus"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.images[name], nil
}

// PullImage implements cri.Images. Every pull succeeds at once.
func (r *Runtime) PullImage(
	_ context.Context,
	name string,
	_ *runtime.AuthConfig,
	_ *runtime.PodSandboxConfig,
) (string, error) {
	if err := r.countCall("PullImage"); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.newImage(name)
	r.images[name] = i
	return i.Id, nil
}

// ListImages implements cri.Images.
func (r *Runtime) ListImages(context.Context) ([]*runtime.Image, error) {
	if err := r.countCall("ListImages"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtime.Image
	for _, i := range r.images {
		list = append(list, i)
	}
	return list, nil
}

// RemoveImage implements cri.Images.
func (r *Runtime) RemoveImage(_ context.Context, id string) error {
	if err := r.countCall("RemoveImage"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, i := range r.images {
		if i.Id == id || name == id {
			delete(r.images, name)
		}
	}
	return nil
}

// ImageFsInfo implements cri.Images.
func (r *Runtime) ImageFsInfo(context.Context) ([]*runtime.FilesystemUsage, error) { return nil, nil }
