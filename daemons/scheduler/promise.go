package scheduler

import (
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
)

// promise notes that room is being made for a pod, which then waits by itself, or that none is made any more.
func (q *queue) promise(it *item, promised *cluster.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[promised.UID] == it {
		it.pod = promised
	}
}

// unpromise takes that back.
func (q *queue) unpromise(p *cluster.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.pods[p.UID]
	if it == nil || it.pod.Nominated == "" {
		return
	}
	lesser := *it.pod
	lesser.Nominated = ""
	if it.pos < 0 {
		it.pod = &lesser
		return
	}
	q.leave(it)
	it.pod = &lesser
	q.join(it)
}

// shown notes which node the API shows as promised to a pod.
func (q *queue) shown(uid types.UID, node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.pods[uid]; it != nil {
		it.promised = node
	}
}

// promised is the node that the API shows as promised to a pod.
func (q *queue) promised(uid types.UID) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.pods[uid]; it != nil {
		return it.promised
	}
	return ""
}

// hold keeps a pod that is being placed from being tried again until letGo: its victims are there still, and others
// would be chosen.
func (q *queue) hold(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held[uid] = false
}

// letGo ends hold. The pod is tried again when an event came meanwhile, or when none may come: anew.
func (q *queue) letGo(uid types.UID, anew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	missed := q.held[uid]
	delete(q.held, uid)
	if it := q.pods[uid]; it != nil && it.class.at == inParked && (missed || anew) {
		q.unplace(it.class)
		q.wake(it.class, forceActivate)
	}
}

// holds reports whether a class is a pod that is held, and notes that an event came for it.
func (q *queue) holds(c *class) bool {
	uid := types.UID(c.key) // a pod that is promised a node is a class of its own
	if _, held := q.held[uid]; held {
		q.held[uid] = true
		return true
	}
	return false
}
