package image

import (
	"fmt"
	"slices"
	"strings"

	"clusterctl/daemons/config"
)

// Policy decides for which images on the node a pod must prove that it could pull them.
type Policy struct {
	Verify string // one of the policies of config
	// Allowed is the allowlist of config.VerifyAllButAllowed. An entry is an image name without tag and digest, or a
	// path that ends with /* and matches all images below it.
	Allowed []string
}

// NewPolicy returns the policy of a kubelet's configuration.
func NewPolicy(f *config.KubeletFile) Policy {
	return Policy{Verify: f.ImagePullCredentialsVerificationPolicy, Allowed: f.PreloadedImagesVerificationAllowlist}
}

// needsProof reports whether a pod must prove that it could pull an image. pulled reports whether this kubelet pulled
// it.
func (p Policy) needsProof(image string, pulled bool) bool {
	switch p.Verify {
	case config.VerifyNone:
		return false
	case config.VerifyAll:
		return true
	case config.VerifyAllButAllowed:
		return pulled || !p.isAllowed(image)
	}
	return pulled
}

// isAllowed reports whether an image is on the allowlist of preloaded images.
func (p Policy) isAllowed(image string) bool {
	name, err := ParseName(image)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.Allowed, func(pattern string) bool {
		folder, all := strings.CutSuffix(pattern, "/*")
		if !all {
			allowed, err := ParseName(pattern)
			return err == nil && allowed == name
		}
		full := fmt.Sprintf("%s/%s", name.Registry, name.Repository)
		return strings.HasPrefix(full, folder+"/") || strings.HasPrefix(Untagged(image), folder+"/")
	})
}
