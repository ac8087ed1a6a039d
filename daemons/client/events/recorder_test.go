package events

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
)

func TestRecordersNameTheActionAndTheReporter(t *testing.T) {
	b := record.NewBroadcaster()
	defer b.Shutdown()
	got := make(chan *corev1.Event, 1)
	b.StartEventWatcher(func(e *corev1.Event) { got <- e })
	r, err := NewRecorder(b, "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	about, related := &corev1.ObjectReference{
		Kind:      "Pod",
		Namespace: "n",
		Name:      "victim",
	}, &corev1.ObjectReference{
		Kind:      "Pod",
		Namespace: "n",
		Name:      "important",
	}
	r.Record(about, related, corev1.EventTypeNormal, "Preempted", "Preempting", "it goes")
	e := <-got
	if e.Action != "Preempting" || e.Reason != "Preempted" || e.Message != "it goes" ||
		e.Type != corev1.EventTypeNormal ||
		e.InvolvedObject != *about ||
		e.Related == nil ||
		*e.Related != *related {
		t.Errorf("it says %+v", e)
	}
	if e.ReportingController != "scheduler" || e.ReportingInstance != "scheduler-"+host ||
		e.Source.Component != "scheduler" {
		t.Errorf("the event is reported by %q, %q, %q", e.ReportingController, e.ReportingInstance, e.Source.Component)
	}
	if e.Namespace != "n" || !strings.HasPrefix(e.Name, "victim.") || e.Count != 1 || e.FirstTimestamp.IsZero() ||
		!e.LastTimestamp.Equal(&e.FirstTimestamp) ||
		e.EventTime.IsZero() {
		t.Errorf("it is %+v", e)
	}
	if r, err = NewRecorder(b, strings.Repeat("long.", 20)+"scheduler"); err != nil {
		t.Fatal(err)
	}
	r.Record(about, nil, corev1.EventTypeNormal, "R", "A", "m")
	if e = <-got; !e.EventTime.IsZero() || len(e.ReportingInstance) > 128 {
		t.Errorf("of a name that the API does not take it is %+v", e)
	}
	(*Recorder)(nil).Record(about, nil, corev1.EventTypeNormal, "R", "A", "nobody hears it")
}

// Combined events retain the action and the reporting instance.
func TestCombinedEventsKeepTheAction(t *testing.T) {
	c := testclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	ours := newCorrelator(c)
	var last *corev1.Event
	for i := range similarLimit + 1 {
		c.Step(time.Second)
		e := newEvent(c.Now(), "a", "FailedScheduling", fmt.Sprint(i))
		e.Action, e.ReportingInstance, e.EventTime = "Scheduling", "scheduler-host", metav1.NewMicroTime(c.Now())
		last, _, _ = ours.correlate(e)
	}
	if last == nil || !strings.HasPrefix(last.Message, "(combined") || last.Action != "Scheduling" ||
		last.ReportingInstance != "scheduler-host" ||
		last.ReportingController != "controller" ||
		last.EventTime.IsZero() {
		t.Errorf("it is %+v", last)
	}
}
