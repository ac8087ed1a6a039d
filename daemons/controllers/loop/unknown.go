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
	// mostFaulty is how often a write is tried of which the server says each time that it failed within. That is mostly a webhook
	// that does not work, for which no worker waits: others need it.
	mostFaulty = 3
)

// settled repeats a write until it is known whether it was done, or until ctx ends. Without that a lost answer to the creation of a
// pod is taken for a failure, and the pod is made twice. The write has to be one that can be repeated: an object that is created has
// a name, and one that is deleted is named by its UID.
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

// unseen is the error of a write that was looked for and could not be seen now, so that it stays unknown: a server that has no time
// to answer has not said that there is nothing.
func unseen(err error) error {
	if apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return fmt.Errorf("%w: %w", errUnseen, err)
	}
	return err
}

// unknown says whether a write that failed may have been done: nobody answered, or who answered does not know.
func unknown(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case !errors.As(err, &status):
		return true
	}
	return errors.Is(err, errUnseen) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}
