package kubelet

import "context"

// imageID returns a function that looks up the id of an image. The id is empty if the node does not have the image.
func (k *Kubelet) imageID(ctx context.Context) func(name string) (string, error) {
	return func(name string) (string, error) {
		have, err := k.runtime.ImageStatus(ctx, name)
		return have.GetId(), err
	}
}
