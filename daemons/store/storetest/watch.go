package storetest

import (
	"bytes"
	"context"

	"clusterctl/daemons/store"
)

// WatchResult is a batch of a watch, or in the end the reason why the watch ended.
type WatchResult struct {
	store.Batch
	Err error
}

// Watch watches in the background until ctx ends or the watch ends. Then it closes the channel.
func Watch(ctx context.Context, s store.Store, prefix string, after int64) <-chan WatchResult {
	out := make(chan WatchResult)
	send := func(w WatchResult) error {
		select {
		case out <- w:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	go func() {
		defer close(out)
		err := s.Watch(ctx, prefix, after, func(b store.Batch) error {
			events := make([]store.Event, len(b.Events))
			for i, e := range b.Events {
				events[i], events[i].Value = e, bytes.Clone(e.Value)
			}
			b.Events = events
			return send(WatchResult{Batch: b})
		})
		if ctx.Err() == nil {
			_ = send(WatchResult{Err: err})
		}
	}()
	return out
}
