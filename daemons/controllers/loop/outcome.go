package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Delays between attempts of a write whose outcome is not known.
const (
	minPause = 10 * time.Millisecond
	maxPause = 5 * time.Second
	// maxInternalErrors is the maximum number of attempts while the server answers each with an internal error. A
	// webhook is usually broken then, and a worker must not wait for it.
	maxInternalErrors = 3
)

// retryUntilKnown repeats a write until its outcome is known or ctx ends. Otherwise a lost answer to a pod's creation
// would count as a failure, and the pod would be created twice. The write must be repeatable: a created object has a
// name, and a deleted one is identified by its UID.
func (c Context) retryUntilKnown(ctx context.Context, write func() error) error {
	unanswered := false
	for pause, try := minPause, 1; ; pause, try = min(2*pause, maxPause), try+1 {
		err := write()
		if !isOutcomeUnknown(err) {
			return err
		}
		if unanswered = unanswered || !apierrors.IsInternalError(err); !unanswered && try == maxInternalErrors {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-c.After(pause):
		}
	}
}

var errOutcomeUnreadable = errors.New("what has become of a write cannot be seen")

// outcomeUnreadable wraps the error of a read that should show whether a write was done. If the server was too busy to
// answer, the outcome is still unknown.
func outcomeUnreadable(err error) error {
	if apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return fmt.Errorf("%w: %w", errOutcomeUnreadable, err)
	}
	return err
}

// isOutcomeUnknown reports whether a failed write may have been done all the same: there was no answer, or the server
// does not know.
func isOutcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case !errors.As(err, &status):
		return true
	}
	return errors.Is(err, errOutcomeUnreadable) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsInternalError(err) ||
		apierrors.IsUnexpectedServerError(err)
}
