package events

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"clusterctl/kube/kubernetes/fake"
)

// A recorder without events creates nothing. Events are written from the first one until the shutdown.
func TestLazyRecordersCreateTheirBroadcasterWithTheFirstEvent(t *testing.T) {
	clients := fake.NewClientset()
	about := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "p"}}
	quiet, r := NewLazy(t.Context(), clients, "quiet"), NewLazy(t.Context(), clients, "talker")
	if quiet.broadcaster != nil || r.broadcaster != nil {
		t.Error("there is a broadcaster before there is an event")
	}
	quiet.Shutdown()
	quiet.Event(about, corev1.EventTypeNormal, "Late", "too late")
	if quiet.broadcaster != nil {
		t.Error("one that was shut down has a broadcaster")
	}
	watch, err := clients.CoreV1().Events("n").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	for i, recordEvent := range []func(record.EventRecorder){
		func(to record.EventRecorder) { to.Event(about, corev1.EventTypeNormal, "A", "it is 1") },
		func(to record.EventRecorder) { to.Eventf(about, corev1.EventTypeNormal, "B", "it is %d", 1) },
		func(to record.EventRecorder) {
			to.AnnotatedEventf(about, map[string]string{"k": "v"}, corev1.EventTypeNormal, "C", "it is %d", 1)
		},
	} {
		recordEvent(r)
		e := (<-watch.ResultChan()).Object.(*corev1.Event)
		if e.Reason != string(rune('A'+i)) || e.Message != "it is 1" || e.Source.Component != "talker" ||
			e.InvolvedObject.Name != "p" {
			t.Errorf("event %d is %+v", i, e)
		}
	}
	r.Shutdown()
	r.Event(about, corev1.EventTypeNormal, "Late", "too late") // has no effect
}
