package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kinds/validate"
)

// Parts of an image's name, in the grammar that registries and runtimes share.
var (
	imageHost = validate.Pattern(
		`^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*(:[0-9]+)?$|^\[[a-fA-F0-9:]+\](:[0-9]+)?$`,
	)
	imagePath   = validate.Pattern(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	imageTag    = validate.Pattern(`^\w[\w.-]{0,127}$`)
	imageDigest = validate.Pattern(`^[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$`)
	imageID     = validate.Pattern(`^[a-f0-9]{64}$`)
)

const maxImagePath = 255

// pullPolicy returns Always for an image without a tag or with the tag latest, because such images change. It returns
// IfNotPresent for others and for invalid names.
func pullPolicy(image string) corev1.PullPolicy {
	if tag, ok := tagOf(image); ok && tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// tagOf returns the tag of an image: latest if it has neither tag nor digest. ok is false for invalid names.
func tagOf(image string) (tag string, ok bool) {
	name, sum, digest := strings.Cut(image, "@")
	if digest && !imageDigest().MatchString(sum) || imageID().MatchString(image) {
		return "", false
	}
	tagged := strings.LastIndexByte(name, ':') > strings.LastIndexByte(name, '/')
	if tagged {
		i := strings.LastIndexByte(name, ':')
		name, tag = name[:i], name[i+1:]
		if !imageTag().MatchString(tag) {
			return "", false
		}
	}
	// The first part is a host if it cannot be the start of a path.
	if host, path, several := strings.Cut(name, "/"); several &&
		(strings.ContainsAny(host, ".:") || host == "localhost" || strings.ToLower(host) != host) {
		if !imageHost().MatchString(host) {
			return "", false
		}
		name = path
	}
	if len(name) > maxImagePath || !imagePath().MatchString(name) {
		return "", false
	}
	if !tagged && !digest {
		tag = "latest"
	}
	return tag, true
}
