// Package storagemigration carries out StorageVersionMigrations: it writes every object of a resource once without a
// change, so that the API server stores it in the current storage version. When encryption keys change, the API server
// rewrites the values by itself.
package storagemigration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	migrationlisters "k8s.io/client-go/listers/storagemigration/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
)

// Reasons and messages of conditions, in upstream's words.
const (
	reasonRunning   = "MigrationRunning"
	reasonCompleted = "MigrationCompleted"
	reasonSucceeded = "StorageVersionMigrationSucceeded"
	reasonFailed    = "StorageVersionMigrationFailed"
)

// resourceWait is how long a migration waits for its resource to be served: one manifest may create both.
const resourceWait = time.Minute

type controller struct {
	loop.Context
	loop.Loop  // keys are resources; each has at most one running migration
	migrations migrationlisters.StorageVersionMigrationLister
	mapper     meta.ResettableRESTMapper
	// checkRewritten returns an error while the API server still has values that are encrypted with an old key.
	checkRewritten func(context.Context) error

	mu    sync.Mutex
	pages map[types.UID]string // the page at which a running migration continues
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	migrations := informers.StorageVersionMigrations(c.Informers)
	m := &controller{Context: c, migrations: migrations.Lister(), pages: map[types.UID]string{},
		mapper: discovery.NewMapper(c.Client.Discovery())}
	m.checkRewritten = m.checkEncryption
	m.Loop = loop.Loop{
		Name:            "storage-version-migrator",
		QueueMetricName: "storage-version-migrator-controller",
		Context:         c,
		Sync:            m.sync,
		Synced:          []cache.InformerSynced{migrations.Informer().HasSynced},
	}
	c.OnChange(migrations.Informer(), func(old, obj any) {
		if before, ok := old.(*migrationv1.StorageVersionMigration); ok && obj == nil {
			m.setPage(before.UID, "")
			obj = old // the next migration may start
		}
		if s, ok := obj.(*migrationv1.StorageVersionMigration); ok {
			m.Queue().Add(s.Spec.Resource.Resource + "." + s.Spec.Resource.Group)
		}
	})
	return m
}

func (m *controller) sync(ctx context.Context, key string) error {
	resource, group, _ := strings.Cut(key, ".")
	all, err := m.migrations.List(labels.Everything())
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(all, func(s *migrationv1.StorageVersionMigration) bool {
		return s.Spec.Resource.Resource != resource || s.Spec.Resource.Group != group
	})
	for _, s := range mine {
		if isOver(s) && hasCondition(s, migrationv1.MigrationRunning) {
			if err := m.finishMigration(ctx, s.DeepCopy()); err != nil {
				return err
			}
		}
	}
	next := nextMigration(mine)
	if next == nil {
		return nil
	}
	return m.continueMigration(ctx, next.DeepCopy())
}

// nextMigration returns the migration to run: the running one, or else the oldest.
func nextMigration(all []*migrationv1.StorageVersionMigration) *migrationv1.StorageVersionMigration {
	waiting := slices.DeleteFunc(slices.Clone(all),
		func(s *migrationv1.StorageVersionMigration) bool { return isOver(s) || s.DeletionTimestamp != nil })
	if len(waiting) == 0 {
		return nil
	}
	return slices.MinFunc(waiting, func(a, b *migrationv1.StorageVersionMigration) int {
		return cmp.Or(compareTrueFirst(hasCondition(a, migrationv1.MigrationRunning),
			hasCondition(b, migrationv1.MigrationRunning)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

func compareTrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func hasCondition(s *migrationv1.StorageVersionMigration, condition migrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, string(condition))
}

func isOver(s *migrationv1.StorageVersionMigration) bool {
	return hasCondition(s, migrationv1.MigrationSucceeded) || hasCondition(s, migrationv1.MigrationFailed)
}

// continueMigration continues a migration from the point that its status shows. Another process may have brought it
// there.
func (m *controller) continueMigration(ctx context.Context, s *migrationv1.StorageVersionMigration) error {
	resource, err := m.servedResource(s)
	switch {
	case meta.IsNoMatchError(err) && m.Now().Before(s.CreationTimestamp.Add(resourceWait)):
		return err
	case meta.IsNoMatchError(err):
		return m.recordEnd(ctx, s, errors.New("unable to obtain GVR from discovery"))
	case err != nil:
		return fmt.Errorf("find out in which version %s is served: %w", s.Spec.Resource.String(), err)
	}
	if !hasCondition(s, migrationv1.MigrationRunning) {
		if err := m.recordStart(ctx, s); err != nil {
			return err
		}
		m.setCondition(s, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, "The migration is running")
		if s, err = m.write(ctx, s); err != nil {
			return err
		}
	}
	if s.Status.ResourceVersion == "" {
		list, err := m.Metadata.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return m.endIfPermanent(ctx, s, err)
		}
		s.Status.ResourceVersion = list.ResourceVersion
		if s, err = m.write(ctx, s); err != nil {
			return err
		}
	}
	if err := m.migrate(ctx, s, resource); err != nil {
		return m.endIfPermanent(ctx, s, err)
	}
	if err := m.checkRewritten(ctx); err != nil {
		return m.reportWaiting(ctx, s, err)
	}
	return m.recordEnd(ctx, s, nil)
}

// reportWaiting reports what a migration still waits for. Objects that are already migrated are not written again.
func (m *controller) reportWaiting(ctx context.Context, s *migrationv1.StorageVersionMigration, cause error) error {
	cause = fmt.Errorf("wait for encryption keys: %w", cause)
	condition := meta.FindStatusCondition(s.Status.Conditions, string(migrationv1.MigrationRunning))
	if message := cause.Error(); condition == nil || condition.Message != message {
		m.setCondition(s, migrationv1.MigrationRunning, metav1.ConditionTrue, reasonRunning, message)
		if _, err := m.write(ctx, s); err != nil {
			return err
		}
	}
	return cause
}

// checkEncryption returns nil if everything that is stored is encrypted with the first key of the API server's
// configuration.
func (m *controller) checkEncryption(ctx context.Context) error {
	body, err := m.Client.Discovery().RESTClient().Get().AbsPath("/readyz/encryption-rewritten").Do(ctx).Raw()
	if err == nil {
		return nil
	}
	if text := strings.TrimSpace(string(body)); text != "" {
		return errors.New(text)
	}
	return err
}

// servedResource returns the resource in its group's preferred version.
func (m *controller) servedResource(s *migrationv1.StorageVersionMigration) (schema.GroupVersionResource, error) {
	of := schema.GroupVersionResource{Group: s.Spec.Resource.Group, Resource: s.Spec.Resource.Resource}
	resource, err := m.mapper.ResourceFor(of)
	if meta.IsNoMatchError(err) {
		m.mapper.Reset() // the resource may be new
		resource, err = m.mapper.ResourceFor(of)
	}
	return resource, err
}

// endIfPermanent ends a migration after a permanent error. It returns a temporary error, so that the migration
// continues later.
func (m *controller) endIfPermanent(ctx context.Context, s *migrationv1.StorageVersionMigration, err error) error {
	if apierrors.IsNotFound(err) || isTransient(err) {
		m.mapper.Reset() // the version may not be served any more
		return err
	}
	return m.recordEnd(ctx, s, err)
}

// isTransient reports whether an error says nothing about the object, because the server did not answer or was not able
// to.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsUnexpectedServerError(err)
}

// recordEnd records how a migration ended. It updates the definition afterwards, so that this is repeated after an
// interruption.
func (m *controller) recordEnd(ctx context.Context, s *migrationv1.StorageVersionMigration, cause error) error {
	if cause == nil {
		m.setCondition(s, migrationv1.MigrationSucceeded, metav1.ConditionTrue, reasonSucceeded, "")
	} else {
		m.setCondition(s, migrationv1.MigrationFailed, metav1.ConditionTrue, reasonFailed,
			fmt.Sprintf("migration encountered "+
				"unhandled error: %s", cause))
	}
	s, err := m.write(ctx, s)
	if err != nil {
		return err
	}
	m.setPage(s.UID, "")
	if !hasCondition(s, migrationv1.MigrationRunning) {
		return nil
	}
	return m.finishMigration(ctx, s)
}

// finishMigration updates the definition of the resource, if it has one, and then sets the migration to not running.
func (m *controller) finishMigration(ctx context.Context, s *migrationv1.StorageVersionMigration) error {
	if err := m.recordResult(ctx, s); err != nil {
		return err
	}
	m.setCondition(s, migrationv1.MigrationRunning, metav1.ConditionFalse, reasonCompleted, "Migration completed")
	_, err := m.write(ctx, s)
	return err
}

func (m *controller) setCondition(
	s *migrationv1.StorageVersionMigration,
	of migrationv1.MigrationConditionType,
	status metav1.ConditionStatus,
	reason, message string,
) {
	meta.SetStatusCondition(
		&s.Status.Conditions,
		metav1.Condition{Type: string(of), Status: status, LastTransitionTime: metav1.NewTime(m.Now()),
			Reason: reason, Message: message, ObservedGeneration: s.Generation},
	)
}

func (m *controller) write(
	ctx context.Context,
	s *migrationv1.StorageVersionMigration,
) (*migrationv1.StorageVersionMigration, error) {
	written, err := m.Client.StoragemigrationV1().
		StorageVersionMigrations().
		UpdateStatus(ctx, s, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("write the status of StorageVersionMigration %s: %w", s.Name, err)
	}
	return written, nil
}
