package dev

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
)

// TestInformersFollowCustomResources uses a definition's objects as an operator does.
// Proves S12.
func TestInformersFollowCustomResources(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	definitions := dynamicClient.Resource(
		schema.GroupVersionResource{
			Group:    "apiextensions.k8s.io",
			Version:  "v1",
			Resource: "customresourcedefinitions",
		},
	)
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.dev.example.com"},
		"spec": map[string]any{
			"group": "dev.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{
				map[string]any{
					"name":    "v1",
					"served":  true,
					"storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{
						"type": "object",
						"properties": map[string]any{"spec": map[string]any{"type": "object",
							"properties": map[string]any{"size": map[string]any{"type": "integer"}}}},
					}},
				},
			},
		},
	}}
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := schema.GroupVersionResource{Group: "dev.example.com", Version: "v1", Resource: "widgets"}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0)
	informer := factory.ForResource(widgets)
	lister := informer.Lister().ByNamespace("default")
	informed := informer.Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	waitFor(t, "the informer", func(context.Context) (bool, any) { return informed.HasSynced(), "not synced" })
	for i := range 5 {
		widget := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "dev.example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"name": fmt.Sprint("w", i)}, "spec": map[string]any{"size": int64(i)},
		}}
		if _, err := dynamicClient.Resource(widgets).Namespace("default").Create(ctx, widget,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "all widgets", func(context.Context) (bool, any) {
		for i := range 5 {
			if _, err := lister.Get(fmt.Sprint("w", i)); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err := definitions.Delete(ctx, "widgets.dev.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "no widgets", func(context.Context) (bool, any) {
		left := informed.GetStore().ListKeys()
		return len(left) == 0, left
	})
}
