package metrics

import (
	"context"
	"log/slog"
	"time"

	"clusterctl/daemons/client/presence"
)

// registration maintains the objects by which the API server finds this server, unless another server provides the
// group version.
type registration struct {
	registrar *registrar
	endpoint  *presence.Publisher // nil if the service needs no endpoint
	log       *slog.Logger
}

const (
	registerInterval = 30 * time.Second
	registerTimeout  = 10 * time.Second
)

// run checks the objects repeatedly until ctx ends.
func (p *registration) run(ctx context.Context) {
	pause := 200 * time.Millisecond
	leave := func() {} // removes this server's endpoint from the service
	defer func() { leave() }()
	before := false
	for first := true; ctx.Err() == nil; {
		wait := registerInterval
		look, cancel := context.WithTimeout(ctx, registerTimeout)
		ours, err := p.registrar.register(look)
		cancel()
		switch {
		case err != nil: // leave everything unchanged
			if ctx.Err() == nil {
				p.log.Warn("register metrics.k8s.io", "err", err)
			}
			wait, pause = pause, min(2*pause, registerInterval)
		case ours != before || first:
			first, before, pause = false, ours, 200*time.Millisecond
			leave()
			if leave = (func() {}); ours {
				leave = p.publishEndpoint(ctx)
			} else {
				p.log.Info("metrics.k8s.io or its service is another server's, and is left to it")
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// publishEndpoint publishes the endpoint until leave is called. leave waits until it is removed.
func (p *registration) publishEndpoint(ctx context.Context) (leave func()) {
	if p.endpoint == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.endpoint.Run(ctx)
	}()
	return func() { cancel(); <-done }
}
