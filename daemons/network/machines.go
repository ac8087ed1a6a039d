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

// inventoryPatience is how long the first sync waits for the inventory. An API server of an earlier release denies
// access to it.
const inventoryPatience = 5 * time.Second

// machines reads the inventory of machines.
type machines struct {
	maps corelisters.ConfigMapLister
	stop func()              // waits until the watch has stopped
	read string              // resource version last read
	last inventory.Inventory // last valid inventory; nil before the first
}

// follow watches the inventory until ctx ends, and calls changed when it changes.
func (m *machines) follow(ctx context.Context, client kubernetes.Interface, log *slog.Logger, changed func()) error {
	factory := informers.New(client, informers.WithNamespace(metav1.NamespaceSystem), informers.WithTransform(lean),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, inventory.Name).String()
		}))
	maps := informers.ConfigMaps(factory)
	m.maps, m.stop = maps.Lister(), factory.Shutdown
	if _, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	}); err != nil {
		return fmt.Errorf("watch the inventory of machines: %w", err)
	}
	factory.StartWithContext(ctx)
	soon, cancel := context.WithTimeout(ctx, inventoryPatience)
	defer cancel()
	if !cache.WaitForCacheSync(soon.Done(), maps.Informer().HasSynced) && ctx.Err() == nil {
		log.Warn(
			"the inventory of machines cannot be read; machines that are no nodes stay known as they are",
			"configMap",
			inventory.Name,
		)
	}
	return nil
}

// list returns the last valid inventory, or nil if there was none. A missing or invalid inventory does not mean that
// machines are gone.
func (m *machines) list(log *slog.Logger) inventory.Inventory {
	is, err := m.maps.ConfigMaps(metav1.NamespaceSystem).Get(inventory.Name)
	if err != nil || is.ResourceVersion == m.read && m.read != "" {
		return m.last
	}
	m.read = is.ResourceVersion
	list, err := inventory.Decode(is.Data)
	if err != nil {
		log.Warn(
			"the inventory of machines cannot be used; machines that are no nodes stay known as they are",
			"configMap",
			inventory.Name,
			"reason",
			err,
		)
		return m.last
	}
	m.last = list
	return m.last
}

// tellUnlisted logs when other machines drop what this machine sends through the overlay.
func (d *daemon) tellUnlisted(list []netip.Addr) {
	d.unlisted.Set(float64(len(list)))
	if text := fmt.Sprint(list); len(list) > 0 && text != d.dropped {
		d.env.Log.Warn(
			"machines behind a router drop what this machine's pods send them: it comes from an address that the "+
				"machine's Node does not list as InternalIP or ExternalIP; route to those machines by an address "+
				"that it lists, or give the machine that address",
			"node",
			d.name,
			"addresses",
			list,
		)
		d.dropped = text
	} else if len(list) == 0 {
		d.dropped = ""
	}
}

// warn logs once that pods behind a router cannot respond to this machine.
func (d *daemon) warn(mute bool) {
	if mute && !d.mute {
		d.env.Log.Warn(
			"pods behind a router cannot answer this machine: it is no node, and the inventory does not have its "+
				"address; clusterctl apply writes the inventory",
			"configMap",
			inventory.Name,
			"machine",
			d.name,
		)
	}
	d.mute = mute
}
