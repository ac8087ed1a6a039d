package credential

import (
	"fmt"
	"net"
	"path"
	"strings"

	"clusterctl/daemons/kubelet/image"
)

// parsePattern returns the images that one of a plugin's matchImages selects. It has no scheme.
func parsePattern(text string) (image.Pattern, error) {
	if strings.Contains(text, "://") {
		return image.Pattern{}, fmt.Errorf("%q has a scheme: write the registry alone", text)
	}
	host, rest, _ := strings.Cut(text, "/")
	p := image.Pattern{Host: host, Path: strings.TrimSuffix(rest, "/")}
	if name, port, err := net.SplitHostPort(host); err == nil {
		p.Host, p.Port = name, port
	}
	if p.Host == "" {
		return image.Pattern{}, fmt.Errorf("%q names no registry", text)
	}
	for part := range strings.SplitSeq(p.Host, ".") {
		if _, err := path.Match(part, ""); err != nil {
			return image.Pattern{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	return p, nil
}
