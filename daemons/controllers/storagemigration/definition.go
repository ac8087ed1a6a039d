package storagemigration

import (
	"context"
	"fmt"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var crdResource = schema.GroupVersionResource{
	Group:    "apiextensions.k8s.io",
	Version:  "v1",
	Resource: "customresourcedefinitions",
}

// migratingCondition is the condition of a CustomResourceDefinition that reports whether its objects are being
// migrated.
const migratingCondition = "StorageMigrating"

// recordStart records in the resource's definition, if it has one, that a migration starts, with the definition's
// generation.
func (m *controller) recordStart(ctx context.Context, s *migrationv1.StorageVersionMigration) error {
	d, err := m.definition(ctx, s)
	if d == nil {
		return err
	}
	m.setDefinitionCondition(d, "True", "MigrationRunning", fmt.Sprintf("Migration %s is running", s.Name))
	return m.writeDefinition(ctx, d)
}

// recordResult records in the definition how the migration ended. If it succeeded and the definition is unchanged since
// it started, all objects are stored in the storage version, so storedVersions is reduced to that version.
func (m *controller) recordResult(ctx context.Context, s *migrationv1.StorageVersionMigration) error {
	d, err := m.definition(ctx, s)
	if d == nil {
		return err
	}
	if !hasCondition(s, migrationv1.MigrationSucceeded) {
		m.setDefinitionCondition(d, "False", "MigrationFailed", "The migration has failed")
		return m.writeDefinition(ctx, d)
	}
	started, same := generationState(d)
	if !started {
		return nil // the definition was created again since, or is already updated
	}
	message := "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	if version := storageVersion(d); same && version != "" {
		message = "The migration has succeeded and the stored versions have been updated"
		if err := unstructured.SetNestedStringSlice(d.Object, []string{version}, "status",
			"storedVersions"); err != nil {
			return fmt.Errorf("set the stored versions of %s: %w", d.GetName(), err)
		}
	}
	m.setDefinitionCondition(d, "False", "MigrationSucceeded", message)
	return m.writeDefinition(ctx, d)
}

// definition returns the definition of a migration's resource, or nil if there is none.
func (m *controller) definition(
	ctx context.Context,
	s *migrationv1.StorageVersionMigration,
) (*unstructured.Unstructured, error) {
	if s.Spec.Resource.Group == "" {
		return nil, nil
	}
	name := s.Spec.Resource.Resource + "." + s.Spec.Resource.Group
	d, err := m.Dynamic.Resource(crdResource).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
	}
	return d, nil
}

func (m *controller) writeDefinition(ctx context.Context, d *unstructured.Unstructured) error {
	if _, err := m.Dynamic.Resource(crdResource).UpdateStatus(ctx, d,
		metav1.UpdateOptions{FieldManager: Manager}); err != nil {
		return fmt.Errorf("write the status of CustomResourceDefinition %s: %w", d.GetName(), err)
	}
	return nil
}

// generationState reports whether the definition has a running migration, and whether its generation is unchanged since
// that started.
func generationState(d *unstructured.Unstructured) (started, same bool) {
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == migratingCondition && c["status"] == "True" {
			return true, c["observedGeneration"] == d.GetGeneration()
		}
	}
	return false, false
}

// setDefinitionCondition sets the definition's condition. Other conditions stay unchanged.
func (m *controller) setDefinitionCondition(d *unstructured.Unstructured, status, reason, message string) {
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	current := map[string]any{
		"type":               migratingCondition,
		"status":             status,
		"reason":             reason,
		"message":            message,
		"observedGeneration": d.GetGeneration(),
		"lastTransitionTime": m.Now().UTC().Format(time.RFC3339),
	}
	for i, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == migratingCondition {
			if c["status"] == status {
				current["lastTransitionTime"] = c["lastTransitionTime"]
			}
			conditions[i] = current
			_ = unstructured.SetNestedSlice(d.Object, conditions, "status", "conditions")
			return
		}
	}
	_ = unstructured.SetNestedSlice(d.Object, append(conditions, current), "status", "conditions")
}

// storageVersion returns the version in which objects are stored.
func storageVersion(d *unstructured.Unstructured) string {
	versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["storage"] == true {
			name, _ := v["name"].(string)
			return name
		}
	}
	return ""
}
