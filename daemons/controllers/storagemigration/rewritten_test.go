package storagemigration

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"

	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// singleResourceMapper is a mapper with one resource.
type singleResourceMapper struct{ *meta.DefaultRESTMapper }

func (singleResourceMapper) Reset() {}

// TestMigrationsWaitForRewrittenValues uses an API server that is still rewriting values of an old key.
func TestMigrationsWaitForRewrittenValues(t *testing.T) {
	s := newMigration("m", time.Hour, migrationv1.MigrationRunning)
	s.Spec.Resource = metav1.GroupResource{Resource: "secrets"}
	s.Status.ResourceVersion = "1"
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, meta.RESTScopeNamespace)
	var reason error
	m := &controller{
		Context: loop.Context{
			Client:   fake.NewClientset(s),
			Metadata: metadatafake.NewSimpleMetadataClient(scheme),
			Log:      slog.New(slog.DiscardHandler),
		},
		pages:          map[types.UID]string{},
		mapper:         singleResourceMapper{mapper},
		checkRewritten: func(context.Context) error { return reason },
	}
	look := func() *migrationv1.StorageVersionMigration {
		t.Helper()
		got, err := m.Client.StoragemigrationV1().StorageVersionMigrations().Get(t.Context(), "m", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	reason = errors.New("what is stored is still being written with another key")
	for range 2 {
		if err := m.continueMigration(t.Context(), look()); !errors.Is(err, reason) {
			t.Fatalf("while the server writes: %v", err)
		}
	}
	now := look()
	if c := meta.FindStatusCondition(now.Status.Conditions, string(migrationv1.MigrationRunning)); isOver(now) ||
		c.Message != "wait for encryption keys: "+reason.Error() {
		t.Errorf("while the server writes it says %+v", now.Status.Conditions)
	}
	reason = nil
	if err := m.continueMigration(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if now = look(); !hasCondition(now, migrationv1.MigrationSucceeded) ||
		hasCondition(now, migrationv1.MigrationRunning) {
		t.Errorf("afterwards it says %+v", now.Status.Conditions)
	}
}
