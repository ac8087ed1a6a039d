package cluster

// Room caches the results about nodes' resources for pods with the same requests. Scheduling a pod changes only one
// node, so the results for thousands of others can be reused for the next pod.
type Room struct {
	rows []Judged // by the node's index
	used uint64
}

// Judged holds the results for one node in its present state.
type Judged struct {
	epoch   uint64
	changes uint32

	// These fields report which of the fields below are set. The caller that computes a result sets its field.
	HasLacks, HasFit, HasBalanced bool
	Lacks                         uint8
	Fit, Balanced                 int8
}

// roomKey is what pods that share a Room have in common: their requests, and the arguments for scores.
type roomKey struct {
	asks, usual [3]int64
	by          any
}

// maxRooms is the maximum number of cached Rooms.
const maxRooms = 32

// Room returns the cached results for pods with these requests and usual amounts. It returns nil for pods that request
// other resources, such as devices. Callers must not retain it for longer than one pod.
func (c *Cluster) Room(asks, usual *Resources, by any) *Room {
	if len(asks.Other) > 0 || len(usual.Other) > 0 {
		return nil
	}
	key := roomKey{
		[3]int64{asks.MilliCPU, asks.Memory, asks.Ephemeral},
		[3]int64{usual.MilliCPU, usual.Memory, usual.Ephemeral},
		by,
	}
	c.recent++
	r := c.rooms[key]
	if r == nil {
		c.dropRoom()
		r = &Room{rows: make([]Judged, len(c.nodes))}
		c.rooms[key] = r
	}
	r.used = c.recent
	return r
}

// dropRoom removes the least recently used Room if there are maxRooms.
func (c *Cluster) dropRoom() {
	if len(c.rooms) < maxRooms {
		return
	}
	var oldest roomKey
	least := c.recent
	for key, r := range c.rooms {
		if r.used < least {
			oldest, least = key, r.used
		}
	}
	delete(c.rooms, oldest)
}

// Of returns the results for a node. They are empty if the node has changed since.
func (r *Room) Of(n *Node) *Judged {
	if n.Index >= len(r.rows) {
		r.rows = append(r.rows, make([]Judged, n.Index+1-len(r.rows))...)
	}
	j := &r.rows[n.Index]
	if j.epoch != n.Epoch || j.changes != n.changes {
		*j = Judged{epoch: n.Epoch, changes: n.changes}
	}
	return j
}
