package storagemigration

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// Manager is the field manager of this controller's writes, which should not own any fields.
	Manager = "storage-version-migrator-controller"

	pageSize            = 500
	maxConcurrentWrites = 8 // concurrent writes of one migration
)

// migrate writes every object of a resource that was last written before the migration started. After an interruption
// the same process continues at the same page. Another process continues with the objects that have not been written
// yet.
func (m *controller) migrate(
	ctx context.Context,
	s *migrationv1.StorageVersionMigration,
	resource schema.GroupVersionResource,
) error {
	for {
		page := m.page(s.UID)
		list, err := m.Metadata.Resource(resource).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: page})
		if page != "" && apierrors.IsResourceExpired(err) {
			m.setPage(s.UID, "")
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", s.Spec.Resource.String(), err)
		}
		g, each := errgroup.WithContext(ctx)
		g.SetLimit(maxConcurrentWrites)
		for i := range list.Items {
			g.Go(func() error { return m.rewrite(each, &list.Items[i], s.Status.ResourceVersion, resource) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
		m.setPage(s.UID, list.Continue)
		if list.Continue == "" {
			return nil
		}
	}
}

// rewrite makes the API server store an object without a change. An object that was changed or deleted since needs no
// rewrite.
func (m *controller) rewrite(
	ctx context.Context,
	o *metav1.PartialObjectMetadata,
	start string,
	resource schema.GroupVersionResource,
) error {
	order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, start)
	if err != nil {
		return fmt.Errorf("compare the resource versions of %s/%s: %w", o.Namespace, o.Name, err)
	}
	if order > 0 {
		return nil
	}
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}},
	)
	if err != nil {
		return err
	}
	_, err = m.Metadata.Resource(resource).
		Namespace(o.Namespace).
		Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// page returns the page at which a migration continues. It is empty at the start.
func (m *controller) page(of types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pages[of]
}

func (m *controller) setPage(of types.UID, page string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages[of] = page; page == "" {
		delete(m.pages, of)
	}
}
