package route

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// These are the prefixes of annotations: the project's own, and the one of ingress-nginx, which has lower precedence.
const (
	projectPrefix = "clusterctl.local/"
	nginxPrefix   = "nginx.ingress.kubernetes.io/"
)

// Problem is a request of an Ingress that is not fulfilled.
type Problem struct{ Reason, Message string }

// setting parses the value of an annotation into a policy.
type setting func(p *Policy, value string) error

var annotationSettings = map[string]setting{
	"proxy-connect-timeout": duration(func(p *Policy) *time.Duration { return &p.Connect }),
	"proxy-read-timeout":    duration(func(p *Policy) *time.Duration { return &p.Read }),
	"proxy-send-timeout":    duration(func(p *Policy) *time.Duration { return &p.Send }),
	"proxy-body-size": func(p *Policy, value string) (err error) {
		p.MaxBody, err = parseSize(value)
		return err
	},
	"min-body-rate": func(p *Policy, value string) error {
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return fmt.Errorf("%q is not a number of bytes in a second", value)
		}
		p.MinRate = int64(n)
		return nil
	},
	"ssl-redirect":       boolean(func(p *Policy) *bool { return &p.RedirectTLS }),
	"force-ssl-redirect": boolean(func(p *Policy) *bool { return &p.ForceTLS }),
	"backend-protocol": func(p *Policy, value string) error {
		protocol := Protocol(strings.ToUpper(value))
		if !slices.Contains([]Protocol{HTTP, HTTPS, GRPC, GRPCS}, protocol) {
			return fmt.Errorf("%q is not one of HTTP, HTTPS, GRPC, GRPCS", value)
		}
		p.Protocol = protocol
		return nil
	},
	"rewrite-target": func(p *Policy, value string) error {
		switch {
		case strings.Contains(value, "$"):
			return fmt.Errorf("%q names groups of a regular expression; paths are not expressions", value)
		case !strings.HasPrefix(value, "/") || !IsValidPath(value):
			return fmt.Errorf("%q is not an absolute path", value)
		}
		p.Rewrite = value
		return nil
	},
	// These annotations only allow the built-in behavior.
	"proxy-buffering":         onlyValue("off"),
	"proxy-request-buffering": onlyValue("off"),
	"proxy-http-version":      onlyValue("1.1"),
	"use-regex":               onlyValue("false"),
}

// policyOf returns the policy that results from an Ingress' annotations and the default policy. It also returns
// the problems for annotations that are not supported.
func policyOf(annotations map[string]string, defaults Policy) (Policy, []Problem) {
	var problems []Problem
	for _, prefix := range []string{nginxPrefix, projectPrefix} {
		for _, name := range slices.Sorted(maps.Keys(annotations)) {
			short, ok := strings.CutPrefix(name, prefix)
			if !ok {
				continue
			}
			set := annotationSettings[short]
			if set == nil {
				problems = append(problems,
					Problem{"UnsupportedAnnotation", fmt.Sprintf("annotation %s is not carried out", name)})
				continue
			}
			if err := set(&defaults, annotations[name]); err != nil {
				problems = append(problems,
					Problem{"InvalidAnnotation", fmt.Sprintf("annotation %s is not carried out: %v", name, err)})
			}
		}
	}
	return defaults, problems
}

func duration(of func(*Policy) *time.Duration) setting {
	return func(p *Policy, value string) error {
		d, err := time.ParseDuration(value)
		if seconds, e := strconv.Atoi(value); e == nil {
			d, err = time.Duration(seconds)*time.Second, nil
		}
		if err != nil || d <= 0 || d > 24*time.Hour {
			return fmt.Errorf("%q is neither a number of seconds nor a duration of at most 24h", value)
		}
		*of(p) = d
		return nil
	}
}

func boolean(of func(*Policy) *bool) setting {
	return func(p *Policy, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		*of(p) = b
		return nil
	}
}

func onlyValue(what string) setting {
	return func(_ *Policy, value string) error {
		if value != what {
			return fmt.Errorf("%q is not supported, only %q is", value, what)
		}
		return nil
	}
}

// parseSize parses a number of bytes in nginx's notation: 10, 8k, 1m, 2g.
func parseSize(value string) (int64, error) {
	text, unit := strings.ToLower(value), int64(1)
	for suffix, bytes := range map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = rest, bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<60/unit {
		return 0, fmt.Errorf("%q is not a size, as in 8m", value)
	}
	return n * unit, nil
}

// IsValidPath reports whether a path is valid in a request line.
func IsValidPath(path string) bool {
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '?' {
			return false
		}
	}
	return true
}
