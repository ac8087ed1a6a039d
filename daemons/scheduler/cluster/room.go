package cluster

// Room is what has been worked out about the room that nodes have for pods which ask for the same amounts. Among
// thousands of nodes one changes when a pod is placed, and the others need not be looked at again for the next pod.
type Room struct {
	rows []Judged // by node's index
	used uint64
}

// Judged is what is known of one node as it is.
type Judged struct {
	epoch   uint64
	changes uint32

	// Which of the others are worked out already; whoever works one out says so.
	HasLacks, HasFit, HasBalanced bool
	Lacks                         uint8
	Fit, Balanced                 int8
}

// roomKey is what pods have in common that share a Room: what they ask for, and by which arguments nodes are rated.
type roomKey struct {
	asks, usual [3]int64
	by          any
}

// maxRooms bounds how many of them are kept.
const maxRooms = 32

// Room returns what is known of nodes for pods that ask for so much, and that are taken to use so much. It returns nil
// for pods that ask for devices and the like. Nobody keeps it longer than for one pod.
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

// dropRoom makes place for another one: that which was not asked for the longest goes.
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

// Of is what is known of a node. It is empty when the node has changed since.
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
