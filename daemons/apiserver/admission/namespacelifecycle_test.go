package admission

import (
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// A plan dry-runs all objects of a namespace that it is going to create. Only the first of them waits for the
// namespace. Real writes wait each time, since the namespace may appear at any moment.
func TestOneDryRunWaitsForAMissingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &namespaceLifecycle{objects: storedObjects()}
		admit := func(dry bool) time.Duration {
			began := time.Now()
			a := &api.Admission{Operation: "CREATE", Namespace: "fresh", Name: "c", DryRun: dry,
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
			if err := p.Admit(t.Context(), a); !apierrors.IsNotFound(err) {
				t.Fatalf("in a namespace that is not there: %v", err)
			}
			return time.Since(began)
		}
		for i, want := range []struct {
			dry  bool
			took time.Duration
		}{{true, namespaceWait}, {true, 0}, {true, 0}, {false, namespaceWait}} {
			if took := admit(want.dry); took != want.took {
				t.Errorf("write %d took %s, not %s", i, took, want.took)
			}
		}
		time.Sleep(missedTTL)
		if took := admit(true); took != namespaceWait {
			t.Errorf("later a dry run took %s, not %s", took, namespaceWait)
		}
	})
}
