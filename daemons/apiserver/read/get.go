package read

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/request"
)

// Get answers with one object.
func (s *Reads) Get(q *request.Request) error {
	if _, err := s.WaitForVersion(q.HTTP.Context(), q.Query.Get("resourceVersion")); err != nil {
		return err
	}
	return s.GetCached(q)
}

// GetCached answers with one object from the cache. It does not wait for the cache.
func (s *Reads) GetCached(q *request.Request) error {
	e, err := q.LiveEntry()
	if err != nil {
		return err
	}
	return q.WriteEntry(http.StatusOK, e)
}

// WaitForVersion waits until the cache may answer a read at a resource version. For an empty version, the cache must
// hold all writes so far. For "0", any state of the cache is acceptable. Otherwise the cache must have reached that
// revision. fresh returns a revision that the cache has reached.
func (s *Reads) WaitForVersion(ctx context.Context, version string) (int64, error) {
	switch version {
	case "":
		revision, err := s.cache.WaitForCurrent(ctx)
		return revision, request.UnavailableError(err)
	case "0":
		return s.cache.Reached(), nil
	}
	revision, err := parseVersion(version)
	if err != nil {
		return 0, invalidVersion(err)
	}
	return s.waitForRevision(ctx, revision)
}

// revisionTimeout is how long a read waits for a revision that the cache has not reached yet.
const revisionTimeout = 3 * time.Second

// waitForRevision waits for a revision that a client names.
func (s *Reads) waitForRevision(ctx context.Context, revision int64) (int64, error) {
	short, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	if err := s.cache.WaitFor(short, revision); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, revisionTooLarge(revision, s.cache.Reached())
	}
	return s.cache.Reached(), nil
}

func parseVersion(version string) (int64, error) {
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), version, err.Error())
	}
	return int64(min(revision, math.MaxInt64)), nil
}

func invalidVersion(err error) error {
	return apierrors.NewBadRequest("invalid resource version: " + err.Error())
}

func revisionTooLarge(requests, reached int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", requests, reached), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// expiredRevision converts cache.ErrExpired to the API error for a revision that has left the log.
func expiredRevision(err error, requests, oldest int64) error {
	if !errors.Is(err, cache.ErrExpired) {
		return err
	}
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", requests, oldest))
}
