// Package loadbalancer assigns addresses to Services of type LoadBalancer, from the pools in the cluster's
// configuration. It corresponds to upstream's service controller with a cloud provider. The statuses of Services are
// the only record of assigned addresses. The machines announce the addresses on the network.
package loadbalancer

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
)

// poolsKey is the queue's key for the pools. Keys of Services contain a slash.
const poolsKey = "pools"

type controller struct {
	loop.Context
	loop.Loop
	ownInformers *informers.Factory // watches only the pools' ConfigMap
	maps         corelisters.ConfigMapLister
	services     corelisters.ServiceLister
	book         *addressBook
	written      loop.WrittenVersions

	// The following fields belong to the single worker.
	isBookFilled bool          // the book contains the state of the store
	hasPools     bool          // the pools have been read
	pools        []config.Pool // sorted by name
	// unreadableReason is why the pools cannot be read now, or empty. The previous pools stay in use, or no pools if
	// none were read.
	unreadableReason string

	mu      sync.Mutex
	waiting map[string]bool // Services to sync again when an address becomes free or the pools change
}

// New returns the controller of Services of type LoadBalancer.
func New(c loop.Context) loop.Controller {
	own := informers.New(c.Client, informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, config.PoolsName).String()
		}))
	services, configMaps := informers.Services(c.Informers), informers.ConfigMaps(own)
	n := &controller{
		Context:      c,
		ownInformers: own,
		maps:         configMaps.Lister(),
		services:     services.Lister(),
		book:         newAddressBook(),
		waiting:      map[string]bool{},
	}
	// A single worker, so that addresses are assigned to one Service at a time.
	n.Loop = loop.Loop{
		Name:            "loadbalancer",
		QueueMetricName: "service",
		Context:         c,
		Workers:         1,
		Sync:            n.sync,
		Synced: []cache.InformerSynced{
			services.Informer().HasSynced, configMaps.Informer().HasSynced},
	}
	c.OnChange(services.Informer(), func(old, obj any) {
		before, _ := old.(*corev1.Service)
		after, _ := obj.(*corev1.Service)
		n.serviceChanged(before, after)
	})
	loop.OnState(configMaps.Informer(), func(any) { n.Queue().Add(poolsKey) })
	return n
}

// Run implements loop.Controller.
func (n *controller) Run(ctx context.Context) error {
	n.ownInformers.StartWithContext(ctx)
	defer n.ownInformers.Shutdown()
	n.Queue().Add(poolsKey) // also if there are no pools
	return n.Loop.Run(ctx)
}

// serviceChanged queues the Services that a change of one Service affects.
func (n *controller) serviceChanged(before, after *corev1.Service) {
	others, freed := n.book.observe(before, after)
	// A Service that is no longer Local leaves room for another within MaxLocal.
	if freed || before != nil && after != nil && before.Spec.ExternalTrafficPolicy != after.Spec.ExternalTrafficPolicy {
		n.enqueueWaiting()
	}
	for _, key := range others {
		n.Queue().Add(key)
	}
	if after != nil && isRelevant(after) {
		n.Add(after)
	}
}

func isRelevant(s *corev1.Service) bool {
	return loadbalancer.NeedsAddresses(s) || loadbalancer.IsManaged(s)
}

// enqueueWaiting queues the Services that did not get what they asked for.
func (n *controller) enqueueWaiting() {
	n.mu.Lock()
	keys := slices.Collect(maps.Keys(n.waiting))
	clear(n.waiting)
	n.mu.Unlock()
	for _, key := range keys {
		n.Queue().Add(key)
	}
}

func (n *controller) setWaiting(key string, isWaiting bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if delete(n.waiting, key); isWaiting {
		n.waiting[key] = true
	}
}

func (n *controller) sync(ctx context.Context, key string) error {
	if key == poolsKey {
		return n.readPools(ctx)
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	n.setWaiting(key, false)
	s, err := n.services.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		n.written.Delete(key)
		return nil
	} else if err != nil {
		return err
	}
	if n.written.IsBehind(key, s.ResourceVersion) {
		return nil // the event of the write queues the Service again
	}
	switch {
	case !loadbalancer.NeedsAddresses(s) || s.DeletionTimestamp != nil:
		if !loadbalancer.IsManaged(s) {
			return nil
		}
		err = n.removeAddresses(ctx, s)
	case !n.hasPools:
		err = n.reportNoPools(ctx, s) // all Services are queued once the pools have been read
	case s.Spec.LoadBalancerClass == nil && !loadbalancer.IsManaged(s) &&
		(len(n.pools) == 0 || len(s.Status.LoadBalancer.Ingress) > 0):
		return nil // another controller's
	case s.Spec.LoadBalancerClass == nil && len(n.pools) == 0:
		n.reportWithdrawn(s, loadbalancer.Addresses(s))
		err = n.removeAddresses(ctx, s) // and another controller may take it over
	default:
		err = n.ensureAddresses(ctx, s)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		n.Events.Eventf(s, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "Error syncing load balancer: %v", err)
	}
	if apierrors.IsNotFound(err) {
		return nil // it was deleted with the finalizer
	}
	return err
}

// readPools reads the pools. The previous pools stay in use until a valid ConfigMap replaces them. A ConfigMap that is
// missing, empty or invalid changes nothing.
func (n *controller) readPools(ctx context.Context) error {
	if err := n.fillBook(ctx); err != nil {
		return err
	}
	m, err := n.maps.ConfigMaps(metav1.NamespaceSystem).Get(config.PoolsName)
	if apierrors.IsNotFound(err) {
		// The cache may be behind, so ask the API server.
		m, err = n.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, config.PoolsName, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return n.reportUnreadablePools(
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: config.PoolsName}},
			"PoolsMissing",
			"it is missing",
		)
	} else if err != nil {
		return fmt.Errorf("read the pools of addresses: %w", err)
	}
	pools, err := config.ReadPools(m.Data, m.Annotations)
	if err != nil {
		return n.reportUnreadablePools(m, "InvalidPools", err.Error())
	}
	n.unreadableReason = ""
	if n.hasPools &&
		reflect.DeepEqual(n.pools, pools) { // not apiequality: it panics on the unexported fields of addresses
		return nil
	}
	n.hasPools, n.pools = true, pools
	for _, pool := range pools {
		n.Log.Info("services get addresses of a pool", "pool", pool.Name, "addresses", pool.Addresses)
	}
	return n.enqueueAll()
}

// enqueueAll queues all Services that this controller manages.
func (n *controller) enqueueAll() error {
	all, err := n.services.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, s := range all {
		if isRelevant(s) {
			n.Add(s)
		}
	}
	return nil
}

// reportUnreadablePools reports once why the pools' ConfigMap cannot be used. It stays silent if the ConfigMap is
// missing, no Service has an address and no pools were ever read: such a cluster uses no pools.
func (n *controller) reportUnreadablePools(m *corev1.ConfigMap, reason, unreadable string) error {
	if n.unreadableReason == unreadable {
		return nil
	}
	n.unreadableReason = unreadable
	used := "the pools from before are used"
	if !n.hasPools {
		used = "services keep the addresses that they have, and get no others"
	}
	if n.hasPools || reason != "PoolsMissing" || n.book.hasAddresses() {
		n.Log.Error("the pools of addresses cannot be read", "configMap", config.PoolsName, "reason", unreadable,
			"consequence", used)
		n.Events.Eventf(m, corev1.EventTypeWarning, reason, "The pools of addresses cannot be read, and %s: %s", used,
			unreadable)
	}
	if n.hasPools {
		return nil
	}
	return n.enqueueAll()
}

// reportNoPools reports to a Service why it gets no address while no pools are known. A Service with addresses retains
// them.
func (n *controller) reportNoPools(ctx context.Context, s *corev1.Service) error {
	if n.unreadableReason == "" || s.Spec.LoadBalancerClass == nil && !loadbalancer.IsManaged(s) ||
		len(n.book.addressesOf(s)) > 0 {
		return nil
	}
	return n.write(
		ctx,
		s,
		decision{
			problem: fmt.Sprintf("the pools of addresses cannot be read: ConfigMap %s/%s: %s", metav1.NamespaceSystem,
				config.PoolsName, n.unreadableReason),
		},
	)
}

// fillBook fills the book, before the first address is assigned, with addresses that a previous leader assigned and the
// cache does not show yet.
func (n *controller) fillBook(ctx context.Context) error {
	if n.isBookFilled {
		return nil
	}
	all, err := n.Client.CoreV1().
		Services("").
		List(ctx, metav1.ListOptions{FieldSelector: "spec.type=" + string(corev1.ServiceTypeLoadBalancer)})
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	for i := range all.Items {
		s := &all.Items[i]
		cached, err := n.services.Services(s.Namespace).Get(s.Name)
		if err != nil || cached.UID != s.UID {
			cached = s.DeepCopy()
			cached.Status = corev1.ServiceStatus{} // the event of its status will come
		}
		n.book.recordWrite(cached, loadbalancer.Addresses(s))
	}
	n.isBookFilled = true
	return nil
}

// removeAddresses removes the addresses of a Service that should have none.
func (n *controller) removeAddresses(ctx context.Context, s *corev1.Service) error {
	n.Events.Event(s, corev1.EventTypeNormal, "DeletingLoadBalancer", "Deleting load balancer")
	status := s.Status.DeepCopy()
	status.LoadBalancer = corev1.LoadBalancerStatus{}
	meta.RemoveStatusCondition(&status.Conditions, loadbalancer.Condition)
	finalizers := slices.DeleteFunc(slices.Clone(s.Finalizers),
		func(f string) bool { return f == loadbalancer.Finalizer })
	n.book.recordWrite(s, nil)
	if err := n.patch(ctx, s, status, finalizers); err != nil {
		return fmt.Errorf("failed to remove load balancer cleanup finalizer: %w", err)
	}
	n.Events.Event(s, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	return nil
}

// ensureAddresses assigns a Service its addresses.
func (n *controller) ensureAddresses(ctx context.Context, s *corev1.Service) error {
	return n.write(ctx, s, decide(s, n.pools, n.book))
}

// write writes a decision to the status and events of a Service.
func (n *controller) write(ctx context.Context, s *corev1.Service, d decision) error {
	status, finalizers := s.Status.DeepCopy(), s.Finalizers
	if !slices.Contains(finalizers, loadbalancer.Finalizer) {
		finalizers = append(slices.Clone(finalizers), loadbalancer.Finalizer)
	}
	status.LoadBalancer.Ingress = n.ingress(s, d.addresses)
	conditionChanged := meta.SetStatusCondition(&status.Conditions, n.condition(s, d))
	n.setWaiting(s.Namespace+"/"+s.Name, d.isWaiting)
	if apiequality.Semantic.DeepEqual(&s.Status, status) && len(finalizers) == len(s.Finalizers) {
		return nil
	}
	moved := !slices.Equal(loadbalancer.Addresses(s), d.addresses)
	if moved {
		n.Events.Event(s, corev1.EventTypeNormal, "EnsuringLoadBalancer", "Ensuring load balancer")
	}
	n.reportWithdrawn(s, d.withdrawn)
	n.book.recordWrite(s, d.addresses)
	if err := n.patch(ctx, s, status, finalizers); err != nil {
		return fmt.Errorf("failed to update load balancer status: %w", err)
	}
	switch {
	case d.problem != "" && conditionChanged:
		n.Events.Eventf(s, corev1.EventTypeWarning, "SyncLoadBalancerFailed",
			"Error syncing load balancer: failed to ensure load balancer: %s", d.problem)
	case moved && d.problem == "":
		n.Events.Event(s, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	return nil
}

func (n *controller) reportWithdrawn(s *corev1.Service, addresses []netip.Addr) {
	for _, a := range addresses {
		n.Events.Eventf(s, corev1.EventTypeWarning, "AddressWithdrawn",
			"Address %s is taken back: no pool has it any more", a)
	}
}

// ingress returns the load balancer ingress for a Service's status.
func (n *controller) ingress(s *corev1.Service, addresses []netip.Addr) (list []corev1.LoadBalancerIngress) {
	var ports []corev1.PortStatus
	for _, p := range s.Spec.Ports {
		ports = append(ports, corev1.PortStatus{Port: p.Port, Protocol: p.Protocol})
	}
	for _, a := range addresses {
		list = append(list,
			corev1.LoadBalancerIngress{IP: a.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeVIP), Ports: ports})
	}
	return list
}

func (n *controller) condition(s *corev1.Service, d decision) metav1.Condition {
	c := metav1.Condition{
		Type:               loadbalancer.Condition,
		Status:             metav1.ConditionFalse,
		Reason:             "NoAddress",
		Message:            d.problem,
		ObservedGeneration: s.Generation,
		LastTransitionTime: metav1.NewTime(n.Now()),
	}
	if d.problem == "" {
		var texts []string
		for _, a := range d.addresses {
			texts = append(texts, fmt.Sprintf("%s of pool %s", a, poolOf(n.pools, a).Name))
		}
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Assigned", strings.Join(texts, ", ")
	}
	return c
}

// patch writes a Service's status and finalizers, unless the Service has changed since it was read.
func (n *controller) patch(
	ctx context.Context,
	s *corev1.Service,
	status *corev1.ServiceStatus,
	finalizers []string,
) error {
	var conditions []metav1.Condition // nil removes the field
	conditions = append(conditions, status.Conditions...)
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": s.UID, "resourceVersion": s.ResourceVersion, "finalizers": finalizers},
		"status": map[string]any{
			"loadBalancer": map[string]any{"ingress": status.LoadBalancer.Ingress},
			"conditions":   conditions,
		},
	})
	if err != nil {
		return err
	}
	written, err := n.Client.CoreV1().
		Services(s.Namespace).
		Patch(ctx, s.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	n.written.Record(s.Namespace+"/"+s.Name, written.ResourceVersion)
	return nil
}
