package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Between tries of a write whose outcome is not known.
const (
	firstPause = 10 * time.Millisecond
	widePause  = 5 * time.Second
	// mostFaulty is how often a write is tried that the server answers with an internal error each time. Mostly a
	// webhook does not work then, and a worker must not wait for it.
	mostFaulty = 3
)

// settled repeats a write until it is known whether it was done, or until ctx ends. Without that a lost answer to the
// creation of a pod is taken for a failure, and the pod is made twice. The write has to be one that can be repeated: an
// object that is created has a name, and one that is deleted is named by its UID.
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

// unseen wraps the error of a read that should have shown whether a write was done. When the server was too busy to
// answer, that is still not known.
func unseen(err error) error {
	if apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return fmt.Errorf("%w: %w", errUnseen, err)
	}
	return err
}

// unknown says whether a failed write may have been done all the same: there was no answer, or the server itself does
// not know.
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
