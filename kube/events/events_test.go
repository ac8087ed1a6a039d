package events

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type pages [][]corev1.Event

func (p pages) List(_ context.Context, o metav1.ListOptions) (*corev1.EventList, error) {
	list := &corev1.EventList{Items: p[len(o.Continue)]}
	if len(o.Continue)+1 < len(p) {
		list.Continue = o.Continue + "x"
	}
	return list, nil
}

func event(name, reason string, count int32, at time.Time) corev1.Event {
	return corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: name}, Type: "Warning",
		Reason: reason, Message: "a\x1b[2J\nb", Count: count, LastTimestamp: metav1.NewTime(at)}
}

func TestRepeatedEventsOfAllPagesAreOneGroupAndTheNewestIsLast(t *testing.T) {
	now := time.Unix(1000, 0)
	from := pages{{event("web", "BackOff", 3, now)}, {event("web", "BackOff", 2, now.Add(-time.Minute)),
		event("db", "Failed", 0, now.Add(-time.Second)), event("old", "Failed", 1, now.Add(-time.Hour))}}
	r, err := List(t.Context(), from, Filter{Since: now.Add(-time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Groups) != 2 || r.Groups[0].Name != "db" || r.Groups[1].Count != 5 || !r.Groups[1].Last.Equal(now) {
		t.Error(r.Groups)
	}
	var out strings.Builder
	if err := Print(&out, r, now); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 3 {
		t.Errorf("%q", text)
	}
	r, err = List(t.Context(), from, Filter{Objects: OfObject("Pod", "old"), Type: "Warning"})
	if err != nil || len(r.Groups) != 1 || r.Groups[0].Name != "old" {
		t.Error(r, err)
	}
}

func TestAListThatDoesNotEndIsTruncated(t *testing.T) {
	r, err := List(t.Context(), make(pages, maxPages+1), Filter{})
	if err != nil || !r.Truncated {
		t.Error(r, err)
	}
}
