package events

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// source answers lists and watches, one after the other.
type source struct {
	lists   []any // []corev1.Event or an error
	watches []any // []watch.Event, which then ends, or an error
}

func (s *source) List(context.Context, metav1.ListOptions) (*corev1.EventList, error) {
	next := s.lists[0]
	s.lists = s.lists[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: next.([]corev1.Event)}, nil
}

func (s *source) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.ResourceVersion != "7" {
		return nil, errors.New("not from the version of the list")
	}
	next := s.watches[0]
	s.watches = s.watches[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	changes := make(chan watch.Event, 10)
	for _, e := range next.([]watch.Event) {
		changes <- e
	}
	close(changes)
	return watch.NewProxyWatcher(changes), nil
}

func versionOf(name, version string) corev1.Event {
	e := event(name, "BackOff", 1, time.Unix(1000, 0))
	e.UID, e.ResourceVersion = types.UID(name), version
	return e
}

func change(kind watch.EventType, e corev1.Event) watch.Event {
	return watch.Event{Type: kind, Object: &e}
}

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no rights"))

func TestFollowedEventsHaveNoGapAndNoRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := apierrors.NewResourceExpired("too old").Status()
		s := &source{
			lists: []any{
				[]corev1.Event{versionOf("a", "1"), versionOf("deleted", "2")},
				errors.New("connection refused"),
				[]corev1.Event{versionOf("a", "3"), versionOf("b", "4"), versionOf("c", "5")},
				[]corev1.Event{versionOf("a", "3"), versionOf("b", "4"), versionOf("c", "5"), versionOf("d", "6")},
				errForbidden,
			},
			watches: []any{
				[]watch.Event{change(watch.Modified, versionOf("a", "3")), change(watch.Added, versionOf("b", "4")),
					change(watch.Deleted, versionOf("deleted", "2"))},
				[]watch.Event{{Type: watch.Error, Object: &expired}},
				errors.New("connection reset"),
			},
		}
		var got []string
		var retries []string
		err := Follow(t.Context(), s, Filter{}, func(g Group) error {
			got = append(got, g.Name)
			return nil
		}, func(err error) { retries = append(retries, err.Error()) })
		if !apierrors.IsForbidden(err) {
			t.Error(err)
		}
		if want := []string{"a", "deleted", "a", "b", "c", "d"}; !slices.Equal(got, want) {
			t.Errorf("%v, expected %v", got, want)
		}
		want := []string{"list events: connection refused", "watch events: connection reset"}
		if !slices.Equal(retries, want) {
			t.Errorf("retries %q, expected %q", retries, want)
		}
	})
}

func TestFollowingEndsWithTheCaller(t *testing.T) {
	first := []any{[]corev1.Event{versionOf("a", "1")}}
	failure := errors.New("broken pipe")
	err := Follow(t.Context(), &source{lists: first}, Filter{}, func(Group) error { return failure }, nil)
	if !errors.Is(err, failure) {
		t.Error(err)
	}
	err = Follow(t.Context(), &source{lists: []any{errors.New("connection refused")}}, Filter{}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = Follow(ctx, &source{lists: first, watches: []any{[]watch.Event{}}}, Filter{}, func(Group) error {
		cancel()
		return nil
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestALineOfAnEventHasNoControlCharacters(t *testing.T) {
	var out strings.Builder
	e := versionOf("web", "1")
	if err := PrintLine(&out, newGroup(&e)); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "Pod/web  BackOff") {
		t.Errorf("%q", text)
	}
}
