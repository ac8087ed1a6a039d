package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
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
	is, err := m.configMaps.ConfigMaps(metav1.NamespaceSystem).Get(inventory.Name)
	if err != nil || is.ResourceVersion == m.lastVersion && m.lastVersion != "" {
		return m.lastInventory
	}
	m.lastVersion = is.ResourceVersion
	list, err := inventory.Decode(is.Data)
	if err != nil {
		log.Warn("the inventory of machines cannot be used; machines that are not nodes keep their last known "+
			"addresses", "configMap", inventory.Name, "reason", err)
		return m.lastInventory
	}
	m.lastInventory = list
	return m.lastInventory
}

// logUnlisted logs when other machines drop what this machine sends through the overlay.
func (d *daemon) logUnlisted(list []netip.Addr) {
	d.unlisted.Set(float64(len(list)))
	if text := fmt.Sprint(list); len(list) > 0 && text != d.loggedUnlisted {
		d.env.Log.Warn("machines behind a router drop what this machine's pods send them: it comes from an address "+
			"that the machine's Node does not list as InternalIP or ExternalIP; route to those machines by an address "+
			"that it lists, or give the machine that address", "node", d.name, "addresses", list)
		d.loggedUnlisted = text
	} else if len(list) == 0 {
		d.loggedUnlisted = ""
	}
}

// logUnanswered logs once that pods behind a router cannot respond to this machine.
func (d *daemon) logUnanswered(mute bool) {
	if mute && !d.loggedUnanswered {
		d.env.Log.Warn("pods behind a router cannot answer this machine: it is not a node, and the inventory does not "+
			"have its address; clusterctl apply writes the inventory", "configMap", inventory.Name, "machine", d.name)
	}
	d.loggedUnanswered = mute
}
