package endpoints

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/controllers/loop"
)

// lastChanges remembers what each service's endpoints were made from. From that follows the time of the change that an
// update carries, by which others measure how long the network takes to react.
type lastChanges struct {
	mu   sync.Mutex
	seen map[string]*sources
}

// sources are the times that endpoints follow: when the service was made, and when each pod became ready or stopped
// being it.
type sources struct {
	service time.Time
	pods    map[string]readiness
}

// readiness has the state beside the time, because times are in whole seconds: a pod may be made and become ready
// within one.
type readiness struct {
	ready bool
	at    time.Time
}

// since returns the time of the earliest change since the sources that were kept for a key, and the sources to keep
// after writing. The time is zero when no object tells it: a deleted pod does not.
func (l *lastChanges) since(key string, service *corev1.Service, pods []*corev1.Pod) (time.Time, *sources) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lastChange(l.seen[key], service, pods)
}

func (l *lastChanges) keep(key string, now *sources) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]*sources{}
	}
	l.seen[key] = now
}

func (l *lastChanges) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, key)
}

// lastChange compares a service and its pods with what they were; was is nil for a service that is new here.
func lastChange(was *sources, service *corev1.Service, pods []*corev1.Pod) (time.Time, *sources) {
	now := &sources{service: service.CreationTimestamp.Time, pods: make(map[string]readiness, len(pods))}
	for _, pod := range pods {
		if ready, at := loop.Ready(pod); !at.IsZero() {
			now.pods[pod.Name] = readiness{ready, at}
		}
	}
	if was == nil {
		return now.service, now
	}
	var first time.Time
	consider := func(at time.Time, changed bool) {
		if changed && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	consider(now.service, now.service.After(was.service))
	for name, is := range now.pods {
		before := was.pods[name]
		consider(is.at, is.at.After(before.at) || is.at.Equal(before.at) && is.ready != before.ready)
	}
	return first, now
}

// stamp writes when the change happened that an object follows; a zero time takes away what an earlier one wrote.
func stamp(o *metav1.ObjectMeta, when time.Time) {
	if when.IsZero() {
		delete(o.Annotations, corev1.EndpointsLastChangeTriggerTime)
		return
	}
	metav1.SetMetaDataAnnotation(o, corev1.EndpointsLastChangeTriggerTime, when.UTC().Format(time.RFC3339Nano))
}
