package workload

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An apply retries transient errors. While the members of etcd elect a leader, the API server returns Timeout.
func TestTemporaryErrorsAreRetried(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	for _, c := range []struct {
		err  error
		soon bool
	}{
		{errors.New("connection refused"), true},
		{apierrors.NewTimeoutError("learn the store's revision: the store does not answer", 0), true},
		{apierrors.NewServerTimeout(maps, "get", 1), true},
		{apierrors.NewTooManyRequests("slow down", 1), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewNotFound(maps, "a"), true},
		{apierrors.NewBadRequest("no"), false},
		{apierrors.NewForbidden(maps, "a", errors.New("no")), false},
		{apierrors.NewMethodNotSupported(maps, "get"), false},
	} {
		if got := isTemporary(fmt.Errorf("apply: %w", c.err)); got != c.soon {
			t.Errorf("%v passes by itself: %v, want %v", c.err, got, c.soon)
		}
	}
}
