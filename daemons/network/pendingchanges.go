package network

import (
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/network/policy"
)

// pendingChanges collects changes until the loop takes them. Its size is limited by the number of existing objects.
type pendingChanges struct {
	mu       sync.Mutex
	policies map[string]bool // namespace/name
	pods     map[string]bool // namespace/name
	slices   map[string]bool // names
	machine  *policy.Machine
	wake     chan struct{}
}

func newPendingChanges() *pendingChanges {
	return &pendingChanges{
		policies: map[string]bool{},
		pods:     map[string]bool{},
		slices:   map[string]bool{},
		wake:     make(chan struct{}, 1),
	}
}

func (c *pendingChanges) addPolicy(key string) { c.add(c.policies, key) }
func (c *pendingChanges) addPod(key string)    { c.add(c.pods, key) }
func (c *pendingChanges) addSlice(name string) { c.add(c.slices, name) }

func (c *pendingChanges) add(in map[string]bool, key string) {
	c.mu.Lock()
	in[key] = true
	c.mu.Unlock()
	c.wakeLoop()
}

// retryLater records a key for another attempt. It does not wake the loop, whose next run is already scheduled.
func (c *pendingChanges) retryLater(in map[string]bool, key string) {
	c.mu.Lock()
	in[key] = true
	c.mu.Unlock()
}

func (c *pendingChanges) setMachine(m policy.Machine) {
	c.mu.Lock()
	c.machine = &m
	c.mu.Unlock()
	c.wakeLoop()
}

// wakeLoop wakes the loop.
func (c *pendingChanges) wakeLoop() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// takeKeys returns and clears the keys of one kind.
func (c *pendingChanges) takeKeys(from map[string]bool) (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range from {
		keys = append(keys, k)
	}
	clear(from)
	return keys
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
	return cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: func(_, is any) { do(is) }, DeleteFunc: do}
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
