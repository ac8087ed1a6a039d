// Package image decides how a node obtains container images. It interprets image names and selects the pull secrets for
// an image. It decides whether a pod may use an image that the node already has. The runtime does the pulling.
package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// Name is an image name as the runtime resolves it: with its registry, and without a tag or digest.
type Name struct {
	Registry   string // host with an optional port; "docker.io" if the name has none
	Repository string // path below the registry, without a leading slash
}

// dockerHub is the registry of image names that contain none. hubHost is the host that serves it.
const (
	dockerHub = "docker.io"
	hubHost   = "registry-1.docker.io"
)

// ParseName returns the parts of an image name. The error states what is wrong with the name.
func ParseName(image string) (Name, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return Name{}, fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return Name{Registry: reference.Domain(named), Repository: reference.Path(named)}, nil
}

// String returns the registry and the path, as in docker.io/library/busybox.
func (n Name) String() string { return n.Registry + "/" + n.Repository }

// server returns the URL of the registry, to which the runtime restricts a credential.
func (n Name) server() string {
	if n.Registry == dockerHub {
		return "https://" + hubHost
	}
	return "https://" + n.Registry
}

// Untagged returns an image name in its written form, without the tag and digest.
func Untagged(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		return image[:colon]
	}
	return image
}
