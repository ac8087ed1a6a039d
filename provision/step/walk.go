package step

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"clusterctl/provision/host"
)

// Check checks all steps and returns a Change for each, which is zero if nothing differs.
func Check(ctx context.Context, h host.Host, steps []Step) ([]Change, error) {
	w := &Walk{}
	changes, errs := make([]Change, len(steps)), make([]error, len(steps))
	var afar sync.WaitGroup
	defer afar.Wait()
	for i, s := range steps {
		if _, ok := s.(remoteCheck); ok {
			afar.Go(func() { changes[i], errs[i] = s.Check(ctx, h, &Walk{}) })
			continue
		}
		if changes[i], errs[i] = s.Check(ctx, h, w); errs[i] != nil {
			break
		}
	}
	afar.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", steps[i].Label(), err)
		}
	}
	return changes, nil
}

// remoteCheck is implemented by steps that connect to other machines. They are checked in parallel, because those
// machines may not answer.
type remoteCheck interface{ checksRemotely() }

// Apply applies the steps that differ, in order, and calls done for each. It stops at the first error.
func Apply(ctx context.Context, h host.Host, steps []Step, done func(index int, c Change)) error {
	w := &Walk{}
	reload := false
	for i := 0; i < len(steps); i++ {
		// After changes of unit files, systemd reads them again once, before the next unit.
		if _, unit := steps[i].(*Unit); unit && reload {
			if err := h.Reload(ctx); err != nil {
				return fmt.Errorf("have systemd read its units again: %w", err)
			}
			reload = false
		}
		group := parallelCount(steps, i)
		g, groupCtx := errgroup.WithContext(ctx)
		for j := i; j < i+group; j++ {
			s := steps[j]
			c, err := s.Check(ctx, h, w)
			if err != nil {
				return fmt.Errorf("check %s: %w", s.Label(), err)
			}
			if c.Action == "" {
				continue
			}
			if c.Kind == "file" && strings.HasPrefix(c.Name, UnitDir) || c.Kind == "drop-in" {
				reload = true
			}
			g.Go(func() error {
				if err := s.Apply(groupCtx, h, w); err != nil {
					return fmt.Errorf("%s: %w", s.Label(), err)
				}
				done(j, c)
				return nil
			})
			if group == 1 {
				break
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
		i += group - 1
	}
	return nil
}

// UnitDir is the directory of unit files.
const UnitDir = "/etc/systemd/system/"

// parallelCount returns how many steps from index i on may be applied at the same time.
func parallelCount(steps []Step, i int) int {
	n := 0
	for _, s := range steps[i:] {
		if u, ok := s.(*Unit); !ok || !u.CanStartInParallel {
			break
		}
		n++
	}
	return max(n, 1)
}
