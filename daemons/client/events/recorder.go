package events

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/record"
)

// Recorder records events of events.k8s.io, as upstream does: with an action, a related object and the reporting
// process. A nil Recorder drops all events.
type Recorder struct {
	broadcaster          broadcaster
	controller, instance string
	omitsTime            bool // the API rejects a precise time from a controller with this name
}

// broadcaster accepts events without blocking, and drops them if there are too many.
type broadcaster interface {
	ActionOrDrop(action watch.EventType, obj runtime.Object) (bool, error)
}

// maxFieldLength is the maximum length in bytes of an event's fields other than the message.
const maxFieldLength = 128

// NewRecorder returns a recorder for a controller, which sends its events to the broadcaster.
func NewRecorder(from record.EventBroadcaster, controller string) (*Recorder, error) {
	to, ok := from.(broadcaster)
	if !ok {
		return nil, fmt.Errorf("a broadcaster of type %T takes no events but through its own recorders", from)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("look for the name of this machine: %w", err)
	}
	instance := controller + "-" + host
	vague := len(validation.IsQualifiedName(controller)) > 0
	return &Recorder{
		broadcaster: to,
		controller:  controller,
		instance:    instance[:min(len(instance), maxFieldLength)],
		omitsTime:   vague,
	}, nil
}

// Record records an event about an object. related is another object that it concerns, or nil. kind is Normal or
// Warning. action is what was done, and reason the result. The event is dropped if too many are waiting.
func (r *Recorder) Record(about, related *corev1.ObjectReference, kind, reason, action, message string) {
	if r == nil {
		return
	}
	now := time.Now()
	at, precise := metav1.NewTime(now), metav1.NewMicroTime(now)
	if r.omitsTime {
		precise = metav1.MicroTime{}
	}
	_, _ = r.broadcaster.ActionOrDrop(watch.Added, &corev1.Event{ // an error means that the broadcaster was shut down
		ObjectMeta: metav1.ObjectMeta{
			Name:      about.Name + "." + strconv.FormatInt(now.UnixNano(), 16),
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault),
		},
		InvolvedObject: *about, Related: related, Type: kind, Reason: reason, Action: action, Message: message,
		EventTime: precise, FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: corev1.EventSource{
			Component: r.controller,
		}, ReportingController: r.controller, ReportingInstance: r.instance,
	})
}
