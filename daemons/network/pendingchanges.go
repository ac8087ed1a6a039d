package network

import (
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/run/reconcile"
)

// pendingChanges collects changes until the loop takes them. Its size is limited by the number of existing objects.
type pendingChanges struct {
	changed  reconcile.Signal
	policies *reconcile.Keys // namespace/name
	pods     *reconcile.Keys // namespace/name
	slices   *reconcile.Keys // names

	mu      sync.Mutex
	machine *policy.Machine
}

func newPendingChanges() *pendingChanges {
	changed := reconcile.NewSignal()
	return &pendingChanges{
		changed:  changed,
		policies: reconcile.NewKeys(changed),
		pods:     reconcile.NewKeys(changed),
		slices:   reconcile.NewKeys(changed),
	}
}

func (c *pendingChanges) setMachine(m policy.Machine) {
	c.mu.Lock()
	c.machine = &m
	c.mu.Unlock()
	c.changed.Wake()
}

func (c *pendingChanges) takeMachine() *policy.Machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.machine
	c.machine = nil
	return m
}

// keyHandler returns an event handler that calls note with the key of every added, changed or deleted object.
func keyHandler(note func(key string)) cache.ResourceEventHandler {
	do := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			note(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, current any) { do(current) },
		DeleteFunc: do}
}

// trimPolicy removes the fields of a policy that the daemon does not read.
func trimPolicy(o any) (any, error) {
	if p, ok := o.(*networkingv1.NetworkPolicy); ok {
		c := *p
		c.ManagedFields, c.Annotations, c.Labels = nil, nil, nil
		return &c, nil
	}
	return o, nil
}
