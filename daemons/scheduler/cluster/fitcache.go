package cluster

// FitCache caches the results about nodes' resources for pods with the same requests. Scheduling a pod changes only one
// node, so the results for thousands of others can be reused for the next pod.
type FitCache struct {
	rows []NodeFit // by the node's index
	used uint64
}

// NodeFit holds the results for one node in its present state.
type NodeFit struct {
	epoch   uint64
	changes uint32

	// These fields report which of the fields below are set. The caller that computes a result sets its field.
	HasLacks, HasFit, HasBalanced bool
	Lacks                         uint8
	Fit, Balanced                 int8
}

// fitCacheKey holds the values that pods with the same FitCache share: their requests, and the arguments for scores.
type fitCacheKey struct {
	requests, withDefaults [3]int64
	arguments              any
}

// maxFitCaches is the maximum number of cached Rooms.
const maxFitCaches = 32

// FitCache returns the cached results for pods with these requests and this usage. It returns nil for pods that
// request other resources, such as devices. Callers must not retain it for longer than one pod.
func (c *Cluster) FitCache(requests, usage *Resources, by any) *FitCache {
	if len(requests.Other) > 0 || len(usage.Other) > 0 {
		return nil
	}
	key := fitCacheKey{
		[3]int64{requests.MilliCPU, requests.Memory, requests.Ephemeral},
		[3]int64{usage.MilliCPU, usage.Memory, usage.Ephemeral},
		by,
	}
	c.useCounter++
	r := c.fitCaches[key]
	if r == nil {
		c.evictFitCache()
		r = &FitCache{rows: make([]NodeFit, len(c.nodes))}
		c.fitCaches[key] = r
	}
	r.used = c.useCounter
	return r
}

// evictFitCache removes the least recently used FitCache if there are maxFitCaches.
func (c *Cluster) evictFitCache() {
	if len(c.fitCaches) < maxFitCaches {
		return
	}
	var oldest fitCacheKey
	minimum := c.useCounter
	for key, r := range c.fitCaches {
		if r.used < minimum {
			oldest, minimum = key, r.used
		}
	}
	delete(c.fitCaches, oldest)
}

// FitOf returns the results for a node. They are empty if the node has changed since.
func (r *FitCache) FitOf(n *Node) *NodeFit {
	if n.Index >= len(r.rows) {
		r.rows = append(r.rows, make([]NodeFit, n.Index+1-len(r.rows))...)
	}
	j := &r.rows[n.Index]
	if j.epoch != n.Epoch || j.changes != n.changes {
		*j = NodeFit{epoch: n.Epoch, changes: n.changes}
	}
	return j
}
