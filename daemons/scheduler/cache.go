package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/plugin"
)

// cache is the cluster as the scheduler knows it: the nodes, the pods on them, and the
// pods that it has just placed and that the API does not show there yet (assumed).
type cache struct {
	mu      sync.Mutex
	nodes   []*plugin.Node
	index   map[string]int                       // of nodes, by name
	pods    map[types.UID]*placed                // assigned and assumed
	strays  map[string]map[types.UID]*plugin.Pod // on nodes that are not known (yet)
	promise map[types.UID]*promised
	start   int
}

// placed is a pod and its node.
type placed struct {
	pod     *plugin.Pod
	node    string
	assumed bool
}

// promised is a pod for which others make room on a node.
type promised struct {
	pod  *plugin.Pod
	node string
}

func newCache() *cache {
	return &cache{
		index: map[string]int{}, pods: map[types.UID]*placed{},
		strays: map[string]map[types.UID]*plugin.Pod{}, promise: map[types.UID]*promised{},
	}
}

func (c *cache) setNode(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.index[node.Name]; ok {
		c.nodes[i] = c.nodes[i].Update(node)
		return
	}
	n := plugin.NewNode(node)
	for _, pod := range c.strays[node.Name] {
		n = n.With(pod)
	}
	delete(c.strays, node.Name)
	c.index[node.Name] = len(c.nodes)
	c.nodes = append(c.nodes, n)
}

func (c *cache) dropNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.index[name]
	if !ok {
		return
	}
	for _, pod := range c.nodes[i].Pods {
		c.stray(name, pod)
	}
	last := len(c.nodes) - 1
	c.nodes[i] = c.nodes[last]
	c.index[c.nodes[i].Name] = i
	c.nodes[last] = nil
	c.nodes = c.nodes[:last]
	delete(c.index, name)
}

func (c *cache) stray(node string, pod *plugin.Pod) {
	if c.strays[node] == nil {
		c.strays[node] = map[types.UID]*plugin.Pod{}
	}
	c.strays[node][pod.UID] = pod
}

// assume counts a pod on a node before the API shows it there.
func (c *cache) assume(pod *plugin.Pod, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods[pod.UID] == nil {
		c.put(pod, node, true)
	}
	delete(c.promise, pod.UID)
}

// forget takes an assumed pod back that was not bound after all.
func (c *cache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pods[uid]; p != nil && p.assumed {
		c.remove(uid)
	}
}

// setPod counts a pod where the API shows it.
func (c *cache) setPod(pod *plugin.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(pod.UID)
	delete(c.promise, pod.UID)
	c.put(pod, pod.Spec.NodeName, false)
}

func (c *cache) dropPod(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(uid)
	delete(c.promise, uid)
}

func (c *cache) put(pod *plugin.Pod, node string, assumed bool) {
	c.pods[pod.UID] = &placed{pod, node, assumed}
	if i, ok := c.index[node]; ok {
		c.nodes[i] = c.nodes[i].With(pod)
	} else {
		c.stray(node, pod)
	}
}

func (c *cache) remove(uid types.UID) {
	p := c.pods[uid]
	if p == nil {
		return
	}
	delete(c.pods, uid)
	if i, ok := c.index[p.node]; ok {
		c.nodes[i] = c.nodes[i].Without(p.pod)
		return
	}
	if delete(c.strays[p.node], uid); len(c.strays[p.node]) == 0 {
		delete(c.strays, p.node)
	}
}

// nominate keeps room on a node for a pod, against those of lower priority.
func (c *cache) nominate(pod *plugin.Pod, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node == "" {
		delete(c.promise, pod.UID)
	} else if c.pods[pod.UID] == nil {
		c.promise[pod.UID] = &promised{pod, node}
	}
}

// snapshot returns the cluster as it is for a pod: with what is promised to others that
// are at least as important. Each begins elsewhere, so that all nodes have their turn.
func (c *cache) snapshot(pod *plugin.Pod) *plugin.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := make([]*plugin.Node, len(c.nodes))
	copy(nodes, c.nodes)
	for uid, p := range c.promise {
		if uid == pod.UID || p.pod.Priority < pod.Priority {
			continue
		}
		if i, ok := c.index[p.node]; ok {
			nodes[i] = nodes[i].With(p.pod)
		}
	}
	s := &plugin.Snapshot{Nodes: nodes, Start: c.start % max(len(nodes), 1)}
	if len(nodes) > 0 {
		step := enoughNodes(len(nodes))
		if step >= len(nodes) {
			step = 1 // all are looked at, but not always in the same order
		}
		c.start = (c.start + step) % len(nodes)
	}
	return s
}
