package scheduler

import (
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
)

// nominate records the nominated node of a pod that is being scheduled, or that it has none any more.
func (q *queue) nominate(it *item, promised *cluster.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[promised.UID] == it {
		it.pod = promised
	}
}

// removeNomination removes a pod's nominated node.
func (q *queue) removeNomination(p *cluster.Pod) {
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
	q.leaveClass(it)
	it.pod = &lesser
	q.joinClass(it)
}

// recordShownNomination records the nominated node that the API shows for a pod.
func (q *queue) recordShownNomination(uid types.UID, node string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.pods[uid]; it != nil {
		it.shownNomination = node
	}
}

// shownNomination returns the nominated node that the API shows for a pod.
func (q *queue) shownNomination(uid types.UID) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.pods[uid]; it != nil {
		return it.shownNomination
	}
	return ""
}

// suspend prevents further attempts for a pod that is being scheduled until resume is called. While its victims still
// exist, another attempt would select different ones.
func (q *queue) suspend(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.suspended[uid] = false
}

// resume reverts hold. The pod is tried again if an event arrived in between, or if retry is set because no event may
// follow.
func (q *queue) resume(uid types.UID, retry bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	missed := q.suspended[uid]
	delete(q.suspended, uid)
	if it := q.pods[uid]; it != nil && it.class.part == partParked && (missed || retry) {
		q.removeFromPart(it.class)
		q.requeue(it.class, forceActivate)
	}
}

// isSuspended reports whether a class is a held pod. If so, it records that an event arrived for it.
func (q *queue) isSuspended(c *class) bool {
	uid := types.UID(c.key) // a nominated pod has a class of its own
	if _, held := q.suspended[uid]; held {
		q.suspended[uid] = true
		return true
	}
	return false
}
