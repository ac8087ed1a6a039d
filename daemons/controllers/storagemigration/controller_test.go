package storagemigration

import (
	"errors"
	"testing"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/controllers/loop"
)

func newMigration(
	name string,
	age time.Duration,
	conditions ...migrationv1.MigrationConditionType,
) *migrationv1.StorageVersionMigration {
	s := &migrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
	}
	for _, c := range conditions {
		s.Status.Conditions = append(s.Status.Conditions,
			metav1.Condition{Type: string(c), Status: metav1.ConditionTrue})
	}
	return s
}

func TestOneMigrationOfAResourceRunsAtATime(t *testing.T) {
	for want, all := range map[string][]*migrationv1.StorageVersionMigration{
		"old":  {newMigration("new", 0), newMigration("old", time.Hour)},
		"a":    {newMigration("b", 0), newMigration("a", 0)},
		"runs": {newMigration("old", time.Hour), newMigration("runs", 0, migrationv1.MigrationRunning)},
		"waiting": {newMigration("done", time.Hour, migrationv1.MigrationSucceeded), newMigration("waiting", 0),
			newMigration("failed", time.Hour, migrationv1.MigrationRunning, migrationv1.MigrationFailed)},
	} {
		if got := nextMigration(all); got == nil || got.Name != want {
			t.Errorf("%v instead of %s", got, want)
		}
	}
	if got := nextMigration([]*migrationv1.StorageVersionMigration{newMigration("done", 0,
		migrationv1.MigrationSucceeded)}); got != nil {
		t.Errorf("%s once more", got.Name)
	}
}

func TestOnlyPermanentErrorsEndAMigration(t *testing.T) {
	gr := schema.GroupResource{Resource: "gears"}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"no answer":        {errors.New("connection reset"), true},
		"too many":         {apierrors.NewTooManyRequestsError("later"), true},
		"a webhook fails":  {apierrors.NewInternalError(errors.New("webhook")), true},
		"no token":         {apierrors.NewUnauthorized("no"), true},
		"not allowed":      {apierrors.NewForbidden(gr, "g", errors.New("no")), false},
		"no longer valid":  {apierrors.NewInvalid(schema.GroupKind{Kind: "Gear"}, "g", nil), false},
		"cannot be listed": {apierrors.NewMethodNotSupported(gr, "list"), false},
	} {
		if isTransient(c.err) != c.want {
			t.Errorf("%s passes: %t", what, !c.want)
		}
	}
}

// Stored versions are removed only if the definition is unchanged since the migration started.
func TestDefinitionsRecordChangesSinceAMigrationStarted(t *testing.T) {
	m := &controller{Context: loop.Context{Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}}
	d := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"generation": int64(3)},
		"spec": map[string]any{
			"versions": []any{
				map[string]any{"name": "v1", "storage": false},
				map[string]any{"name": "v2", "storage": true},
			},
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
	}}
	if started, _ := generationState(d); started {
		t.Error("a migration has begun without a request")
	}
	m.setDefinitionCondition(d, "True", "MigrationRunning", "")
	if started, same := generationState(d); !started || !same {
		t.Errorf("begun %t, same %t", started, same)
	}
	d.SetGeneration(4)
	if started, same := generationState(d); !started || same {
		t.Errorf("changed since: begun %t, same %t", started, same)
	}
	m.setDefinitionCondition(d, "False", "MigrationSucceeded", "")
	if started, _ := generationState(d); started {
		t.Error("it still runs")
	}
	if conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions"); len(conditions) != 2 {
		t.Errorf("conditions: %v", conditions)
	}
	if v := storageVersion(d); v != "v2" {
		t.Errorf("stored as %s", v)
	}
}
