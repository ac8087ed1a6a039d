package main

import (
	"context"
	"fmt"
	"net"
	"time"
)

// shutdownGrace is how long an ending pod goes on serving after the proxy has the new endpoints. A preStop hook has the
// same effect.
const shutdownGrace = time.Second

// replaceContinuously replaces one pod after the other until done is closed, and passes the endpoints to the proxy each
// time.
func (p *backends) replaceContinuously(every time.Duration, done <-chan struct{}, set func([]string) error) error {
	defer p.retired.Wait()
	if every == 0 {
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
		}
		if err := p.add(); err != nil {
			return err
		}
		stopped := p.servers[0]
		p.servers, p.addressList = p.servers[1:], p.addressList[1:]
		if err := set(p.addressList); err != nil {
			return fmt.Errorf("tell the proxy its endpoints: %w", err)
		}
		p.retired.Go(func() {
			time.Sleep(shutdownGrace)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = stopped.Shutdown(ctx)
		})
	}
}

func (p *backends) stop() {
	p.retired.Wait()
	for _, s := range p.servers {
		_ = s.Close()
	}
}

// waitFor waits until a process listens at address.
func waitFor(address string) error {
	until := time.Now().Add(10 * time.Second)
	for {
		nc, err := net.Dial("tcp", address)
		if err == nil {
			return nc.Close()
		}
		if time.Now().After(until) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
