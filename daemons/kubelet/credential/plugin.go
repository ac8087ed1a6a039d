package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/kubelet/image"
)

const (
	configVersion = "kubelet.config.k8s.io/v1"
	pluginGroup   = "credentialprovider.kubelet.k8s.io/"
	pluginTimeout = time.Minute
	maxResponse   = 1 << 20 // bytes of a response
	maxCached     = 1000    // responses per plugin
)

// configuration is a CredentialProviderConfig.
type configuration struct {
	metav1.TypeMeta `json:",inline"`
	Providers       []provider `json:"providers"`
}

type provider struct {
	Name                 string           `json:"name"`
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	APIVersion           string           `json:"apiVersion"`
	Args                 []string         `json:"args,omitempty"`
	Env                  []variable       `json:"env,omitempty"`
	TokenAttributes      json.RawMessage  `json:"tokenAttributes,omitempty"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// parsePlugins parses and validates a CredentialProviderConfig. dir is the directory of the programs.
func parsePlugins(text []byte, dir string) (list []*plugin, err error) {
	var c configuration
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	if c.APIVersion != configVersion || c.Kind != "CredentialProviderConfig" {
		return nil, fmt.Errorf("the file is %s %s, not %s CredentialProviderConfig", c.APIVersion, c.Kind,
			configVersion)
	}
	if len(c.Providers) == 0 {
		return nil, errors.New("providers: must have at least one entry")
	}
	names := map[string]bool{}
	for i, p := range c.Providers {
		problem := ""
		switch {
		case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/\\ \t\n"):
			problem = fmt.Sprintf("name: %q is not a valid program name", p.Name)
		case names[p.Name]:
			problem = fmt.Sprintf("name: %q is listed twice", p.Name)
		case len(p.MatchImages) == 0:
			problem = "matchImages: must have at least one entry"
		case p.DefaultCacheDuration == nil || p.DefaultCacheDuration.Duration < 0:
			problem = "defaultCacheDuration: must be set and not negative"
		case p.APIVersion != pluginGroup+"v1" && p.APIVersion != pluginGroup+"v1beta1" &&
			p.APIVersion != pluginGroup+"v1alpha1":
			problem = fmt.Sprintf("apiVersion: %q is not %sv1, v1beta1 or v1alpha1", p.APIVersion, pluginGroup)
		case len(p.TokenAttributes) > 0:
			problem = "tokenAttributes: this kubelet does not pass service account tokens to plugins"
		}
		for _, pattern := range p.MatchImages {
			if _, err := parsePattern(pattern); err != nil && problem == "" {
				problem = fmt.Sprintf("matchImages: %v", err)
			}
		}
		if problem != "" {
			return nil, fmt.Errorf("providers[%d].%s", i, problem)
		}
		names[p.Name] = true
		made := &plugin{name: p.Name, path: filepath.Join(dir, p.Name), version: p.APIVersion, args: p.Args,
			defaultTTL: p.DefaultCacheDuration.Duration, now: time.Now, running: make(chan struct{}, 1),
			responses: map[string]cachedResponse{}}
		for _, pattern := range p.MatchImages {
			parsed, err := parsePattern(pattern)
			if err != nil {
				return nil, err
			}
			made.patterns = append(made.patterns, parsed)
		}
		for _, v := range p.Env {
			made.env = append(made.env, v.Name+"="+v.Value)
		}
		if _, err := os.Stat(made.path); err != nil {
			return nil, fmt.Errorf("providers[%d]: find the program of %s: %w", i, p.Name, err)
		}
		list = append(list, made)
	}
	return list, nil
}

// plugin is a program that returns the credentials for an image.
type plugin struct {
	name, path, version string
	patterns            []image.Pattern
	args, env           []string
	defaultTTL          time.Duration // cache duration of responses without a cacheDuration
	now                 func() time.Time

	// running holds one value while the program runs, so that only one instance runs. A caller whose context ends stops
	// waiting for it.
	running   chan struct{}
	responses map[string]cachedResponse
}

type cachedResponse struct {
	auths   map[string]image.Auth
	expires time.Time
}

// isFor reports whether the plugin provides credentials for an image.
func (p *plugin) isFor(name image.Name) bool {
	return slices.ContainsFunc(p.patterns, func(pattern image.Pattern) bool { return pattern.Matches(name) })
}

// request and response are CredentialProviderRequest and CredentialProviderResponse.
type request struct {
	metav1.TypeMeta `json:",inline"`
	Image           string `json:"image"`
}

type response struct {
	metav1.TypeMeta `json:",inline"`
	CacheKeyType    string                `json:"cacheKeyType"` // scope of the response: Image, Registry or Global
	CacheDuration   *metav1.Duration      `json:"cacheDuration"`
	Auth            map[string]image.Auth `json:"auth"`
}

// credentials returns the credentials for an image, from the cache if it has a valid response, otherwise by running the
// plugin.
func (p *plugin) credentials(ctx context.Context, name image.Name) (map[string]image.Auth, error) {
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := p.now()
	keys := map[string]string{"Image": "image " + name.String(), "Registry": "registry " + name.Registry,
		"Global": "global"}
	for _, key := range keys {
		if a, ok := p.responses[key]; ok && now.Before(a.expires) {
			return a.auths, nil
		}
	}
	answer, err := p.run(ctx, name.String())
	if err != nil {
		return nil, err
	}
	key, ok := keys[answer.CacheKeyType]
	if !ok {
		return nil, fmt.Errorf("the response has cacheKeyType %q, not Image, Registry or Global", answer.CacheKeyType)
	}
	good := p.defaultTTL
	if answer.CacheDuration != nil {
		good = answer.CacheDuration.Duration
	}
	if good > 0 {
		if len(p.responses) >= maxCached {
			clear(p.responses)
		}
		p.responses[key] = cachedResponse{answer.Auth, now.Add(good)}
	}
	return answer.Auth, nil
}

func (p *plugin) run(ctx context.Context, name string) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, pluginTimeout)
	defer cancel()
	text, err := json.Marshal(request{TypeMeta: metav1.TypeMeta{APIVersion: p.version,
		Kind: "CredentialProviderRequest"}, Image: name})
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, p.path, p.args...)
	c.Env = append(os.Environ(), p.env...)
	c.WaitDelay = time.Second
	out, problems := &boundedBuffer{limit: maxResponse}, &boundedBuffer{limit: 4096}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(text), out, problems
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("the plugin did not exit within %s", pluginTimeout)
		}
		if text := strings.TrimSpace(problems.String()); text != "" {
			return nil, fmt.Errorf("%w: %q", err, text)
		}
		return nil, err
	}
	if out.truncated {
		return nil, fmt.Errorf("the response has more than %d bytes", maxResponse)
	}
	var answer response
	if json.Unmarshal(out.Bytes(), &answer) != nil { // the decoder's error may contain a password
		return nil, errors.New("the response is not a CredentialProviderResponse")
	}
	if answer.Kind != "CredentialProviderResponse" || answer.APIVersion != p.version {
		return nil, fmt.Errorf("the response is %q %q, not %s CredentialProviderResponse", answer.APIVersion,
			answer.Kind, p.version)
	}
	return &answer, nil
}

// boundedBuffer is a buffer that keeps at most the first most bytes. more reports whether it discarded any.
type boundedBuffer struct {
	bytes.Buffer
	limit     int
	truncated bool
}

func (b *boundedBuffer) Write(text []byte) (int, error) {
	room := b.limit - b.Len()
	if len(text) > room {
		b.truncated = true
		b.Buffer.Write(text[:room])
		return len(text), nil
	}
	return b.Buffer.Write(text)
}
