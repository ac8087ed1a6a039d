// Package kms encrypts values with keys that a KMS plugin protects. It uses version 2 of the KMS plugin API, over a
// unix socket. For each key of the plugin there is one random seed, which the plugin encrypts once. Every value is
// encrypted with a key of its own, derived from the seed. So neither writes nor reads call the plugin as long as the
// seeds are cached. The stored form is upstream's EncryptedObject. Package sealed decides which resources are
// encrypted, and when values are rewritten.
package kms

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"
)

// DefaultTimeout is the default timeout of a call to the plugin.
const DefaultTimeout = 3 * time.Second

// ErrPlugin reports that a plugin did not answer, or answered with an error. The operation may succeed later. Other
// errors concern only the value.
var ErrPlugin = errors.New("the plugin does not do it")

// Config configures a Plugin.
type Config struct {
	Name     string           // part of the prefix of stored values
	Endpoint string           // unix:///path of a socket, or unix:///@name of an abstract one
	Timeout  time.Duration    // of one call; zero means DefaultTimeout
	Log      *slog.Logger     // required
	Now      func() time.Time // nil means time.Now
}

// Plugin is a KMS plugin, with its cached seeds.
type Plugin struct {
	config Config
	conn   *grpc.ClientConn
	client kmsapi.KeyManagementServiceClient
	seeds  seedCache

	probing sync.Mutex // held during a check of the plugin

	mu        sync.Mutex // guards the fields below
	current   *writeKey  // nil before the plugin has provided a key
	version   string     // of the API, as the plugin first reported it
	health    error      // result of the last check
	nextCheck time.Time  // when the next check is due
	failures  int        // number of consecutive failed checks
}

// New returns a plugin. It makes no call yet.
func New(c Config) (*Plugin, error) {
	address, err := socketAddress(c.Endpoint)
	if err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &Plugin{config: c, health: errors.New("it was not looked at yet")}
	if p.conn, err = dial(address); err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", c.Endpoint, err)
	}
	p.client = kmsapi.NewKeyManagementServiceClient(p.conn)
	return p, nil
}

// socketAddress returns the address of the unix socket in an endpoint.
func socketAddress(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || u.Path == "" || u.Path == "/" {
		return "", fmt.Errorf("the endpoint %q is not a unix socket: write unix:///path/of/the.sock", endpoint)
	}
	if strings.HasPrefix(u.Path, "/@") {
		return u.Path[1:], nil // an abstract socket, without a file
	}
	return u.Path, nil
}

// Close closes the connection to the plugin.
func (p *Plugin) Close() error { return p.conn.Close() }

// Name returns the plugin's name in the configuration.
func (p *Plugin) Name() string { return p.config.Name }

// Matches reports whether a configuration describes this plugin.
func (p *Plugin) Matches(c Config) bool {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return p.config.Name == c.Name && p.config.Endpoint == c.Endpoint && p.config.Timeout == c.Timeout
}

// namedError adds the plugin's name to an error.
func (p *Plugin) namedError(err error) error {
	return fmt.Errorf("KMS plugin %q at %s: %w", p.config.Name, p.config.Endpoint, err)
}

// Seal encrypts a value for the path where it is stored. It does not call the plugin. If the plugin has not worked for
// writeLifetime, Seal fails.
func (p *Plugin) Seal(where, plain []byte) ([]byte, error) {
	p.mu.Lock()
	w, health := p.current, p.health
	p.mu.Unlock()
	switch {
	case w == nil:
		return nil, p.namedError(fmt.Errorf("it has given no key to write with: %w", health))
	case p.config.Now().After(w.until):
		return nil, p.namedError(fmt.Errorf(
			"nothing is written with the key it gave, which may be its key no longer: %w", health))
	}
	data, err := w.seed.encrypt(where, plain)
	if err != nil {
		return nil, p.namedError(err)
	}
	return encodeStored(w.wrapped, data)
}

// Open decrypts a value that Seal or upstream encrypted. It calls the plugin if the seed is not cached.
func (p *Plugin) Open(ctx context.Context, where, stored []byte) ([]byte, error) {
	w, data, err := decodeStored(stored)
	if err != nil {
		return nil, p.namedError(err)
	}
	s, err := p.unwrap(ctx, w)
	if err != nil {
		return nil, p.namedError(err)
	}
	plain, err := s.decrypt(where, data)
	if err != nil {
		return nil, p.namedError(err)
	}
	return plain, nil
}

// Stale reports whether a stored value would be written with another key of the plugin now.
func (p *Plugin) Stale(stored []byte) bool {
	w, _, err := decodeStored(stored)
	return err != nil || w.KeyID != p.KeyID() || w.EncryptedDEKSourceType != seedType
}

// KeyID returns the ID of the plugin's key for writes; empty before the plugin has provided one.
func (p *Plugin) KeyID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return ""
	}
	return p.current.wrapped.KeyID
}
