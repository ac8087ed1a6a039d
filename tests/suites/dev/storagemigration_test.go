package dev

import (
	"context"
	"fmt"
	"slices"
	"testing"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// The storage version of a definition changes. A migration rewrites each object in the former version once. Then this
// version can be removed. A second migration has nothing to write.
// Proves S12.
func TestObjectsAreStoredInAnotherVersion(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), "gears.moved.example.com"
	definitions := dynamicClient.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	version := gearVersion
	createGears(t, definitions, name)
	ns, group := createNamespace(t), "moved.example.com"
	gears := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gears"}
	old, current := dynamicClient.Resource(gears), dynamicClient.Resource(gears.GroupResource().WithVersion("v2"))
	for i := range 3 {
		gear := &unstructured.Unstructured{
			Object: map[string]any{
				"apiVersion": group + "/v1",
				"kind":       "Gear",
				"metadata":   map[string]any{"name": fmt.Sprint("g", i)},
				"spec":       map[string]any{"size": int64(i)},
			},
		}
		waitFor(t, "the kind", func(ctx context.Context) (bool, any) {
			_, err := old.Namespace(ns).Create(ctx, gear, metav1.CreateOptions{})
			return err == nil, err
		})
	}
	edit := func(f func(d *unstructured.Unstructured)) {
		t.Helper()
		waitFor(t, "a change of the definition", func(ctx context.Context) (bool, any) {
			d, err := definitions.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			f(d)
			_, err = definitions.Update(ctx, d, metav1.UpdateOptions{})
			return err == nil, err
		})
	}
	versions := func(list ...any) func(d *unstructured.Unstructured) {
		return func(d *unstructured.Unstructured) {
			_ = unstructured.SetNestedSlice(d.Object, list, "spec", "versions")
		}
	}
	edit(versions(version("v1", false), version("v2", true)))
	written := func() (revisions []string) {
		t.Helper()
		for _, gear := range must[*unstructured.UnstructuredList](t)(current.Namespace(ns).List(ctx,
			metav1.ListOptions{})).Items {
			revisions = append(revisions, gear.GetResourceVersion())
		}
		return revisions
	}
	before := written()
	s := migrateGears(t, ns+"-1")
	after := written()
	for i := range before {
		if before[i] == after[i] {
			t.Errorf("object %d was not written", i)
		}
	}
	if c := meta.FindStatusCondition(s.Status.Conditions,
		string(migrationv1.MigrationSucceeded)); s.Status.ResourceVersion == "" ||
		c.Reason != "StorageVersionMigrationSucceeded" {
		t.Errorf("status: %+v", s.Status)
	}
	d := must[*unstructured.Unstructured](t)(definitions.Get(ctx, name, metav1.GetOptions{}))
	if stored, _, _ := unstructured.NestedStringSlice(d.Object, "status", "storedVersions"); !slices.Equal(stored,
		[]string{"v2"}) {
		t.Errorf("stored versions: %q", stored)
	}
	if migrateGears(t, ns+"-2"); !slices.Equal(written(), after) {
		t.Error("objects in the storage version were written again")
	}
	edit(versions(version("v2", true)))
	if got := written(); !slices.Equal(got, after) {
		t.Errorf("without the former version: %q", got)
	}
}

// createGears creates a definition with two versions. Objects are stored in v1.
func createGears(t *testing.T, definitions dynamic.ResourceInterface, name string) {
	ctx := t.Context()
	definition := &unstructured.Unstructured{
		Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   map[string]any{"name": name},
			"spec": map[string]any{
				"group":    "moved.example.com",
				"scope":    "Namespaced",
				"names":    map[string]any{"plural": "gears", "kind": "Gear"},
				"versions": []any{gearVersion("v1", true), gearVersion("v2", false)},
			},
		},
	}
	must[*unstructured.Unstructured](t)(definitions.Create(ctx, definition, metav1.CreateOptions{}))
	t.Cleanup(func() { _ = definitions.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) })
}

// migrateGears creates a migration and waits until it has succeeded.
func migrateGears(t *testing.T, as string) *migrationv1.StorageVersionMigration {
	t.Helper()
	ctx, migrations := t.Context(), sharedClient.StoragemigrationV1().StorageVersionMigrations()
	must[*migrationv1.StorageVersionMigration](t)(
		migrations.Create(ctx, &migrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: as},
			Spec: migrationv1.StorageVersionMigrationSpec{
				Resource: metav1.GroupResource{Group: "moved.example.com", Resource: "gears"},
			}}, metav1.CreateOptions{}),
	)
	t.Cleanup(func() { _ = migrations.Delete(context.WithoutCancel(ctx), as, metav1.DeleteOptions{}) })
	var s *migrationv1.StorageVersionMigration
	waitFor(t, "migration "+as, func(ctx context.Context) (bool, any) {
		var err error
		if s, err = migrations.Get(ctx, as, metav1.GetOptions{}); err != nil {
			return false, err
		}
		return meta.IsStatusConditionTrue(s.Status.Conditions, string(migrationv1.MigrationSucceeded)) &&
			meta.IsStatusConditionFalse(s.Status.Conditions, string(migrationv1.MigrationRunning)), s.Status
	})
	return s
}

// gearVersion returns a version of the definition.
func gearVersion(name string, storage bool) any {
	return map[string]any{
		"name":    name,
		"served":  true,
		"storage": storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object",
			"properties": map[string]any{"spec": map[string]any{"type": "object",
				"properties": map[string]any{"size": map[string]any{"type": "integer"}}}}}},
	}
}
