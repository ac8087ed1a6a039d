// Package kms encrypts values with keys that a KMS plugin keeps the lock of: version 2 of the KMS plugin API, over a
// unix socket. For each key of the plugin's there is one random seed; the plugin is asked to encrypt it once, and every
// value is encrypted with a key of its own that is derived of it, so that neither writes nor reads call the plugin as
// long as seeds are remembered. What is stored is upstream's EncryptedObject. Which resources are encrypted, and when
// what is stored is written anew, is package sealed's.
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

// DefaultTimeout is how long a call to the plugin may take when nothing else is said.
const DefaultTimeout = 3 * time.Second

// ErrPlugin is that a plugin did not do what it was asked for: it does not answer, or answers with an error. What is
// asked may be had later. Errors that are not of this kind are about the value alone.
var ErrPlugin = errors.New("the plugin does not do it")

// Config says which plugin.
type Config struct {
	Name     string           // what is stored bears it
	Endpoint string           // unix:///path of its socket, or unix:///@name of an abstract one
	Timeout  time.Duration    // of one call; zero means DefaultTimeout
	Log      *slog.Logger     // required
	Now      func() time.Time // nil means time.Now
}

// Plugin is a KMS plugin, and what it has given.
type Plugin struct {
	config Config
	conn   *grpc.ClientConn
	client kmsapi.KeyManagementServiceClient
	seeds  seeds

	probing sync.Mutex // one look at the plugin at a time

	mu      sync.Mutex // guards what follows
	current *writing   // nil before the plugin has given a key
	version string     // of the API, as the plugin first said
	health  error      // of the last look
	next    time.Time  // when to look again
	failed  int        // looks in a row
}

// New returns a plugin that nobody has called yet.
func New(c Config) (*Plugin, error) {
	address, err := socket(c.Endpoint)
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

// socket is the address of a unix socket that an endpoint names.
func socket(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "unix" || u.Path == "" || u.Path == "/" {
		return "", fmt.Errorf("the endpoint %q is no unix socket: write unix:///path/of/the.sock", endpoint)
	}
	if strings.HasPrefix(u.Path, "/@") {
		return u.Path[1:], nil // without a file
	}
	return u.Path, nil
}

// Close ends the connection to the plugin.
func (p *Plugin) Close() error { return p.conn.Close() }

// Name is what the configuration calls it.
func (p *Plugin) Name() string { return p.config.Name }

// Same says whether a configuration is this plugin's.
func (p *Plugin) Same(c Config) bool {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return p.config.Name == c.Name && p.config.Endpoint == c.Endpoint && p.config.Timeout == c.Timeout
}

// fault says of which plugin an error is.
func (p *Plugin) fault(err error) error {
	return fmt.Errorf("KMS plugin %q at %s: %w", p.config.Name, p.config.Endpoint, err)
}

// Seal encrypts a value for where it is stored. It calls nobody: when the plugin has not been well for writeFor, it
// fails.
func (p *Plugin) Seal(where, plain []byte) ([]byte, error) {
	p.mu.Lock()
	w, health := p.current, p.health
	p.mu.Unlock()
	switch {
	case w == nil:
		return nil, p.fault(fmt.Errorf("it has given no key to write with: %w", health))
	case p.config.Now().After(w.until):
		return nil, p.fault(
			fmt.Errorf("nothing is written with the key it gave, which may be its key no longer: %w", health),
		)
	}
	data, err := w.seed.encrypt(where, plain)
	if err != nil {
		return nil, p.fault(err)
	}
	return encode(w.wrapped, data)
}

// Open decrypts what Seal has made, or upstream. The plugin is called when the seed is not known yet.
func (p *Plugin) Open(ctx context.Context, where, stored []byte) ([]byte, error) {
	w, data, err := decode(stored)
	if err != nil {
		return nil, p.fault(err)
	}
	s, err := p.unwrap(ctx, w)
	if err != nil {
		return nil, p.fault(err)
	}
	plain, err := s.decrypt(where, data)
	if err != nil {
		return nil, p.fault(err)
	}
	return plain, nil
}

// Stale says whether a stored value would be written with another key of the plugin's now.
func (p *Plugin) Stale(stored []byte) bool {
	w, _, err := decode(stored)
	return err != nil || w.KeyID != p.KeyID() || w.EncryptedDEKSourceType != seedType
}

// KeyID is the plugin's key that is written with, empty before it has given one.
func (p *Plugin) KeyID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return ""
	}
	return p.current.wrapped.KeyID
}
