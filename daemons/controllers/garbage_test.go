package controllers

import (
	"context"
	"log/slog"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/garbage"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// Every kind that the garbage collector reads from the shared caches is held by another controller. It watches no kind
// of the shared caches a second time.
func TestTheGarbageCollectorUsesSharedCaches(t *testing.T) {
	client := fake.NewClientset()
	c := loop.Context{
		Client:    client,
		Dynamic:   dynamicfake.NewSimpleDynamicClient(scheme.Scheme),
		Metadata:  metadatafake.NewSimpleMetadataClient(scheme.Scheme),
		Config:    config.DefaultControllerManager(),
		Log:       slog.New(slog.DiscardHandler),
		Events:    record.NewFakeRecorder(10),
		Informers: informers.New(client),
	}
	for _, entry := range all {
		entry.new(c)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	c.Informers.StartWithContext(ended) // only started informers are reported
	synced := c.Informers.WaitForCacheSync(ended.Done())
	held := map[reflect.Type]bool{}
	for kind, of := range scheme.Scheme.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if garbage.IsShared(resource) {
			held[reflect.PointerTo(of)] = true
			if _, err := c.Informers.ForResource(resource); err != nil {
				t.Errorf("the collector cannot read %s in the shared caches: %v", resource, err)
			}
			if _, ok := synced[reflect.PointerTo(of)]; !ok {
				t.Errorf("no controller holds %s", resource)
			}
		}
	}
	for of := range synced {
		if !held[of] {
			t.Errorf("the collector would watch %s a second time", of)
		}
	}
}
