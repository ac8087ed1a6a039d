package metrics

import (
	"context"
	"log/slog"
	"time"

	"clusterctl/daemons/client/presence"
)

// published maintains the objects by which the API server finds this server, unless another server provides the group
// version.
type published struct {
	registrar *registrar
	endpoint  *presence.Publisher // nil if the service needs no endpoint
	log       *slog.Logger
}

const (
	registerEvery = 30 * time.Second
	registerTime  = 10 * time.Second
)

// run checks the objects repeatedly until ctx ends.
func (p *published) run(ctx context.Context) {
	pause := 200 * time.Millisecond
	leave := func() {} // removes this server's endpoint from the service
	defer func() { leave() }()
	was := false
	for first := true; ctx.Err() == nil; {
		wait := registerEvery
		look, cancel := context.WithTimeout(ctx, registerTime)
		ours, err := p.registrar.register(look)
		cancel()
		switch {
		case err != nil: // leave everything unchanged
			if ctx.Err() == nil {
				p.log.Warn("register metrics.k8s.io", "err", err)
			}
			wait, pause = pause, min(2*pause, registerEvery)
		case ours != was || first:
			first, was, pause = false, ours, 200*time.Millisecond
			leave()
			if leave = (func() {}); ours {
				leave = p.enter(ctx)
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

// enter publishes the endpoint until leave is called. leave waits until it is removed.
func (p *published) enter(ctx context.Context) (leave func()) {
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
