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
	firstPause = 10 * time.Millisecond
	widePause  = 5 * time.Second
	// mostFaulty is the maximum number of attempts while the server answers each with an internal error. A webhook is
	// usually broken then, and a worker must not wait for it.
	mostFaulty = 3
)

// settled repeats a write until its outcome is known or ctx ends. Otherwise a lost answer to a pod's creation would
// count as a failure, and the pod would be created twice. The write must be repeatable: a created object has a name,
// and a deleted one is identified by its UID.
func (c Context) settled(ctx context.Context, write func() error) error {
	unanswered := false
	for pause, try := firstPause, 1; ; pause, try = min(2*pause, widePause), try+1 {
		err := write()
		if !unknown(err) {
			return err
		}
		if unanswered = unanswered || !apierrors.IsInternalError(err); !unanswered && try == mostFaulty {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-c.After(pause):
		}
	}
}

var errUnseen = errors.New("what has become of a write cannot be seen")

// unseen wraps the error of a read that should show whether a write was done. If the server was too busy to answer, the
// outcome is still unknown.
func unseen(err error) error {
	if apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return fmt.Errorf("%w: %w", errUnseen, err)
	}
	return err
}

// unknown reports whether a failed write may have been done all the same: there was no answer, or the server does not
// know.
func unknown(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case !errors.As(err, &status):
		return true
	}
	return errors.Is(err, errUnseen) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsInternalError(err) ||
		apierrors.IsUnexpectedServerError(err)
}
