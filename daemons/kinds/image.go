package kinds

import (
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// The parts of an image's name, by the grammar of references that registries and runtimes share.
var (
	imageHost = pattern(
		`^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*(:[0-9]+)?$|^\[[a-fA-F0-9:]+\](:[0-9]+)?$`,
	)
	imagePath = pattern(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	imageTag  = pattern(`^\w[\w.-]{0,127}$`)
	imageSum  = pattern(`^[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$`)
	imageID   = pattern(`^[a-f0-9]{64}$`)
)

// pattern compiles an expression when it is first needed: most processes of the program never do.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

const longestImagePath = 255

// pullPolicy is Always for an image that moves: one without a tag or with latest. What is no image's name is not known
// to move.
func pullPolicy(image string) corev1.PullPolicy {
	if tag, ok := tagOf(image); ok && tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// tagOf returns the tag of an image: latest for one that has neither tag nor digest.
func tagOf(image string) (tag string, ok bool) {
	name, sum, digest := strings.Cut(image, "@")
	if digest && !imageSum().MatchString(sum) || imageID().MatchString(image) {
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
	// A first part is a host when it cannot be the beginning of a path.
	if host, path, several := strings.Cut(name, "/"); several &&
		(strings.ContainsAny(host, ".:") || host == "localhost" || strings.ToLower(host) != host) {
		if !imageHost().MatchString(host) {
			return "", false
		}
		name = path
	}
	if len(name) > longestImagePath || !imagePath().MatchString(name) {
		return "", false
	}
	if !tagged && !digest {
		tag = "latest"
	}
	return tag, true
}
