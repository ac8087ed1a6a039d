package main

import (
	"context"
	"fmt"
	"net"
	"time"
)

// grace is how long an ending pod goes on serving after the proxy has the new endpoints. A preStop hook has the same
// effect.
const grace = time.Second

// roll replaces one pod after the other until done is closed, and passes the endpoints to the proxy each time.
func (p *pods) roll(every time.Duration, done <-chan struct{}, set func([]string) error) error {
	defer p.old.Wait()
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
		gone := p.all[0]
		p.all, p.at = p.all[1:], p.at[1:]
		if err := set(p.at); err != nil {
			return fmt.Errorf("tell the proxy its endpoints: %w", err)
		}
		p.old.Go(func() {
			time.Sleep(grace)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = gone.Shutdown(ctx)
		})
	}
}

func (p *pods) stop() {
	p.old.Wait()
	for _, s := range p.all {
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
