package metrics

import (
	"context"
	"log/slog"
	"time"

	"clusterctl/daemons/client/presence"
)

// published keeps the objects by which the API server finds this one, as long as nobody else serves the group version.
type published struct {
	registrar *registrar
	endpoint  *presence.Publisher // nil: the service needs none
	log       *slog.Logger
}

const (
	registerEvery = 30 * time.Second
	registerTime  = 10 * time.Second
)

// run looks again and again, until ctx ends.
func (p *published) run(ctx context.Context) {
	pause := 200 * time.Millisecond
	leave := func() {} // the service, where this server is an endpoint
	defer func() { leave() }()
	was := false
	for first := true; ctx.Err() == nil; {
		wait := registerEvery
		look, cancel := context.WithTimeout(ctx, registerTime)
		ours, err := p.registrar.register(look)
		cancel()
		switch {
		case err != nil: // it stays as it is
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

// enter publishes the endpoint until what it returns is called, which waits for the end of it.
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
