package endpoints

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/controllers/loop"
)

// lastChanges records what each service's endpoints were made from. It yields the time of the change that an update
// carries. Others measure with it how long the network takes to react.
type lastChanges struct {
	mu   sync.Mutex
	seen map[string]*sources
}

// sources holds the times that determine an endpoint's state: the creation of the service, and each pod's last change
// of readiness.
type sources struct {
	service time.Time
	pods    map[string]readiness
}

// readiness holds the state beside the time, because times are in whole seconds: a pod may be created and become ready
// within one second.
type readiness struct {
	isReady   bool
	changedAt time.Time
}

// since returns the time of the earliest change since the sources that were recorded for a key, and the sources to
// record after the write. The time is zero if no object shows it, as with a deleted pod.
func (l *lastChanges) since(key string, service *corev1.Service, pods []*corev1.Pod) (time.Time, *sources) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lastChange(l.seen[key], service, pods)
}

func (l *lastChanges) record(key string, now *sources) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]*sources{}
	}
	l.seen[key] = now
}

func (l *lastChanges) delete(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, key)
}

// lastChange compares a service and its pods with their recorded sources. old is nil if none are recorded.
func lastChange(old *sources, service *corev1.Service, pods []*corev1.Pod) (time.Time, *sources) {
	now := &sources{service: service.CreationTimestamp.Time, pods: make(map[string]readiness, len(pods))}
	for _, pod := range pods {
		if ready, at := loop.IsReady(pod); !at.IsZero() {
			now.pods[pod.Name] = readiness{ready, at}
		}
	}
	if old == nil {
		return now.service, now
	}
	var first time.Time
	consider := func(at time.Time, changed bool) {
		if changed && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	consider(now.service, now.service.After(old.service))
	for name, current := range now.pods {
		before := old.pods[name]
		consider(current.changedAt, current.changedAt.After(before.changedAt) ||
			current.changedAt.Equal(before.changedAt) &&
				current.isReady != before.isReady)
	}
	return first, now
}

// setTriggerTime writes the time of the change that led to an object. A zero time removes the time of an earlier
// change.
func setTriggerTime(o *metav1.ObjectMeta, when time.Time) {
	if when.IsZero() {
		delete(o.Annotations, corev1.EndpointsLastChangeTriggerTime)
		return
	}
	metav1.SetMetaDataAnnotation(o, corev1.EndpointsLastChangeTriggerTime, when.UTC().Format(time.RFC3339Nano))
}
