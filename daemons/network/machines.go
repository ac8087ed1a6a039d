package network

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config/inventory"
	"clusterctl/kube/kubernetes"
)

// inventoryTimeout is how long the first sync waits for the inventory. An API server of an earlier release denies
// access to it.
const inventoryTimeout = 5 * time.Second

// machineInventory reads the inventory of machines.
type machineInventory struct {
	configMaps    corelisters.ConfigMapLister
	stop          func()              // waits until the watch has stopped
	lastVersion   string              // resource version last read
	lastInventory inventory.Inventory // last valid inventory; nil before the first
}

// watch watches the inventory until ctx ends, and calls changed when it changes.
func (m *machineInventory) watch(ctx context.Context, client kubernetes.Interface, log *slog.Logger,
	changed func()) error {
	factory := informers.New(client, informers.WithNamespace(metav1.NamespaceSystem), informers.WithTransform(trimNode),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, inventory.Name).String()
		}))
	maps := informers.ConfigMaps(factory)
	m.configMaps, m.stop = maps.Lister(), factory.Shutdown
	if _, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	}); err != nil {
		return fmt.Errorf("watch the inventory of machines: %w", err)
	}
	factory.StartWithContext(ctx)
	soon, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(soon.Done(), maps.Informer().HasSynced) && ctx.Err() == nil {
		log.Warn("the inventory of machines cannot be read; machines that are not nodes keep their last known "+
			"addresses", "configMap", inventory.Name)
	}
	return nil
}

// list returns the last valid inventory, or nil if there was none. A missing or invalid inventory does not mean that
// machines are gone.
func (m *machineInventory) list(log *slog.Logger) inventory.Inventory {
	configMap, err := m.configMaps.ConfigMaps(metav1.NamespaceSystem).Get(inventory.Name)
	if err != nil || configMap.ResourceVersion == m.lastVersion && m.lastVersion != "" {
		return m.lastInventory
	}
	m.lastVersion = configMap.ResourceVersion
	list, err := inventory.Decode(configMap.Data)
	if err != nil {
		log.Warn("the inventory of machines cannot be used; machines that are not nodes keep their last known "+
			"addresses", "configMap", inventory.Name, "reason", err)
		return m.lastInventory
	}
	m.lastInventory = list
	return m.lastInventory
}
