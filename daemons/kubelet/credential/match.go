package credential

import (
	"fmt"
	"net"
	"path"
	"strings"

	"clusterctl/daemons/kubelet/image"
)

// parsePattern parses an entry of a plugin's matchImages. It returns an error for an entry with a scheme.
func parsePattern(text string) (image.Pattern, error) {
	if strings.Contains(text, "://") {
		return image.Pattern{}, fmt.Errorf("%q has a scheme: write only the registry", text)
	}
	host, rest, _ := strings.Cut(text, "/")
	p := image.Pattern{Host: host, Path: strings.TrimSuffix(rest, "/")}
	if name, port, err := net.SplitHostPort(host); err == nil {
		p.Host, p.Port = name, port
	}
	if p.Host == "" {
		return image.Pattern{}, fmt.Errorf("%q has no registry", text)
	}
	for part := range strings.SplitSeq(p.Host, ".") {
		if _, err := path.Match(part, ""); err != nil {
			return image.Pattern{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	return p, nil
}
