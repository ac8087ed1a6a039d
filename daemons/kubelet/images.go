package kubelet

import (
	"context"

	"clusterctl/daemons/kubelet/cri"
)

// imageID returns a function that looks up the id of an image. The id is empty if the node does not have the image.
func imageID(ctx context.Context, runtime cri.Service) func(name string) (string, error) {
	return func(name string) (string, error) {
		current, err := runtime.ImageStatus(ctx, name)
		return current.GetId(), err
	}
}
