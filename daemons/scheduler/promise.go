package scheduler

import (
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
)

// promise records the nominated node of a pod that is being scheduled, or that it has none any more.
func (q *queue) promise(it *item, promised *cluster.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[promised.UID] == it {
		it.pod = promised
	}
}

// unpromise removes a pod's nominated node.
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

// shown records the nominated node that the API shows for a pod.
func (q *queue) shown(uid types.UID, node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.pods[uid]; it != nil {
		it.promised = node
	}
}

// promised returns the nominated node that the API shows for a pod.
func (q *queue) promised(uid types.UID) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.pods[uid]; it != nil {
		return it.promised
	}
	return ""
}

// hold prevents further attempts for a pod that is being scheduled until letGo is called. While its victims still
// exist, another attempt would select different ones.
func (q *queue) hold(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held[uid] = false
}

// letGo reverts hold. The pod is tried again if an event arrived in between, or if anew is set because no event may
// follow.
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

// holds reports whether a class is a held pod. If so, it records that an event arrived for it.
func (q *queue) holds(c *class) bool {
	uid := types.UID(c.key) // a nominated pod has a class of its own
	if _, held := q.held[uid]; held {
		q.held[uid] = true
		return true
	}
	return false
}
