package events

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"clusterctl/kube/kubernetes"
	"clusterctl/kube/scheme"
)

// Lazy is a recorder that creates its broadcaster with the first event. Most controllers of a process never record an
// event, and a broadcaster has a buffer for a thousand.
type Lazy struct {
	newBroadcaster func() record.EventBroadcaster
	source         corev1.EventSource

	mu          sync.Mutex
	broadcaster record.EventBroadcaster
	underlying  record.EventRecorder // nil until the first event; stays nil if Shutdown comes first
	isShutDown  bool
}

var _ record.EventRecorder = (*Lazy)(nil)

// NewLazy returns a recorder for a component. It writes events with client until ctx ends or it is shut down.
func NewLazy(ctx context.Context, client kubernetes.Interface, component string) *Lazy {
	return &Lazy{
		source:         corev1.EventSource{Component: component},
		newBroadcaster: func() record.EventBroadcaster { return NewBroadcaster(ctx, client) },
	}
}

// recorder returns the underlying recorder. It returns nil after Shutdown if there was none.
func (l *Lazy) recorder() record.EventRecorder {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underlying == nil && !l.isShutDown {
		l.broadcaster = l.newBroadcaster()
		l.underlying = l.broadcaster.NewRecorder(scheme.Scheme(), l.source)
	}
	return l.underlying
}

// Event implements record.EventRecorder.
func (l *Lazy) Event(object runtime.Object, kind, reason, message string) {
	if to := l.recorder(); to != nil {
		to.Event(object, kind, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (l *Lazy) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	if to := l.recorder(); to != nil {
		to.Eventf(object, kind, reason, format, args...)
	}
}

// AnnotatedEventf implements record.EventRecorder.
func (l *Lazy) AnnotatedEventf(
	object runtime.Object,
	annotations map[string]string,
	kind, reason, format string,
	args ...any,
) {
	if to := l.recorder(); to != nil {
		to.AnnotatedEventf(object, annotations, kind, reason, format, args...)
	}
}

// Shutdown stops the recorder. Later events are dropped.
func (l *Lazy) Shutdown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isShutDown = true; l.broadcaster != nil {
		l.broadcaster.Shutdown()
	}
}
