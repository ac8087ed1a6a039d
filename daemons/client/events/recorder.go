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

// Recorder tells of objects as upstream does in events.k8s.io: also what was being done, what else it is about, and
// which process tells. A nil one tells nobody.
type Recorder struct {
	to                   broadcaster
	controller, instance string
	vague                bool // the API takes no events with a precise time from one of such a name
}

// broadcaster takes events without waiting: there may be too many.
type broadcaster interface {
	ActionOrDrop(action watch.EventType, obj runtime.Object) (bool, error)
}

// longestWord is how long what an event says besides its message may be.
const longestWord = 128

// NewRecorder returns a recorder of a controller by its name, whose events go where those of the broadcaster go.
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
		to:         to,
		controller: controller,
		instance:   instance[:min(len(instance), longestWord)],
		vague:      vague,
	}, nil
}

// Tell tells of an object; related is another one that it is about, or nil. kind is Normal or Warning, action what was
// being done, and reason what came of it. Where too many events wait to be written, it is not written.
func (r *Recorder) Tell(about, related *corev1.ObjectReference, kind, reason, action, message string) {
	if r == nil {
		return
	}
	now := time.Now()
	at, precise := metav1.NewTime(now), metav1.NewMicroTime(now)
	if r.vague {
		precise = metav1.MicroTime{}
	}
	_, _ = r.to.ActionOrDrop(watch.Added, &corev1.Event{ // of which the error is that it has been shut down
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
