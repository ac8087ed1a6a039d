package workload

import (
	"context"
	"fmt"
	"time"

	"clusterctl/provision/state"
)

// Missing returns the objects that do not exist.
func (l *Live) Missing(ctx context.Context, list []state.Object) (removed []state.Object, err error) {
	for _, o := range list {
		live, err := l.get(ctx, o)
		if err != nil {
			return nil, err
		}
		if live == nil {
			removed = append(removed, o)
		}
	}
	return removed, nil
}

// deletionTimeout is how long the deletion of objects may take.
const deletionTimeout = 2 * time.Minute

// Delete deletes objects that still belong to clusterctl, and waits until they are gone, so that they can be created
// again.
func (l *Live) Delete(ctx context.Context, list []state.Object) error {
	ctx, cancel := context.WithTimeout(ctx, deletionTimeout)
	defer cancel()
	for _, o := range list {
		if _, err := l.prune(ctx, o, nil); err != nil {
			return err
		}
	}
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		removed, err := l.Missing(ctx, list)
		if err == nil && len(removed) == len(list) {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("%d of %d are still there: see their finalizers", len(list)-len(removed), len(list))
			}
			return fmt.Errorf("delete %s: %w", list[0].Address, err)
		case <-tick.C:
		}
	}
}
