// Package kmstest gives tests a KMS plugin at a socket of its own, which may be away, come back, and change its key.
// What the plugin does is package server's.
package kmstest

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"clusterctl/tests/kmsplugin/server"
)

// Plugin is a plugin whose key is "one" until it is rotated.
type Plugin struct {
	*server.Server
	Socket string

	key atomic.Value
}

// New returns a plugin that does not answer yet.
func New(t testing.TB) *Plugin {
	t.Helper()
	p := &Plugin{Socket: filepath.Join(t.TempDir(), "kms.sock")}
	p.Rotate("one")
	p.Server = &server.Server{Secret: "s", Key: func() string { return p.key.Load().(string) }}
	return p
}

// Endpoint is where it answers.
func (p *Plugin) Endpoint() string { return "unix://" + p.Socket }

// Rotate gives it another key.
func (p *Plugin) Rotate(id string) { p.key.Store(id) }

// Start has it answer until the function that it returns is called, or the test is over.
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
