// Package kmstest gives tests a KMS plugin with its own socket, which can stop, start again, and change its key.
// Package server implements the plugin.
package kmstest

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"clusterctl/tests/programs/kmsplugin/server"
)

// Plugin is a plugin whose key is "one" until Rotate changes it.
type Plugin struct {
	*server.Server
	Socket string

	key atomic.Value
}

// New returns a plugin that is not yet started.
func New(t testing.TB) *Plugin {
	t.Helper()
	p := &Plugin{Socket: filepath.Join(t.TempDir(), "kms.sock")}
	p.Rotate("one")
	p.Server = &server.Server{Secret: "s", Key: func() string { return p.key.Load().(string) }}
	return p
}

// Endpoint returns the URL of the plugin's socket.
func (p *Plugin) Endpoint() string { return "unix://" + p.Socket }

// Rotate gives the plugin another key.
func (p *Plugin) Rotate(id string) { p.key.Store(id) }

// Start starts the plugin. It runs until the returned function is called or the test ends.
func (p *Plugin) Start(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, p.Socket) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
