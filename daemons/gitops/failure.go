package gitops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// failure is why a source could not be reconciled. Its reason is that of the Ready condition.
type failure struct {
	reason  string
	stalled bool // only a change of the source helps
	err     error
	objects []string // failed objects, for the status
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// redact removes decrypted values from a failure. f and by may be nil.
func (f *failure) redact(by func(text string) string) {
	if f == nil || by == nil {
		return
	}
	f.err = errors.New(by(f.err.Error()))
	for i := range f.objects {
		f.objects[i] = by(f.objects[i])
	}
}

// Reasons of failures.
const (
	reasonSecret  = "SecretNotReadable"
	reasonFetch   = "FetchFailed"
	reasonRender  = "RenderFailed"
	reasonEmpty   = "NothingRendered"
	reasonApply   = "ApplyFailed"
	reasonHealth  = "HealthCheckFailed"
	reasonPrune   = "PruneFailed"
	reasonStatus  = "StatusNotWritten"
	reasonAccount = "AccountNotUsable"
)

// fail returns a failure. The reason of a ReasonError takes precedence over reason.
func fail(reason, attempt string, err error) *failure {
	var named *ReasonError
	if errors.As(err, &named) {
		reason = named.Reason
	}
	return &failure{reason: reason, err: fmt.Errorf("%s: %w", attempt, err)}
}

// failedObjects returns the failure of some of several objects, or nil.
func failedObjects(failed []string, of int, consequence string) *failure {
	if len(failed) == 0 {
		return nil
	}
	return &failure{reason: reasonApply, objects: failed, err: fmt.Errorf("%d of %d objects are refused, %s: %s",
		len(failed), of, consequence, strings.Join(limitList(slices.Clone(failed)), "; "))}
}
