package apiserver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	ownclients "clusterctl/kube/kubernetes"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": "0"}}
}

func parseRevision(t testing.TB, version string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func timeoutContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Proves S11.
func TestConcurrentUpdatesAreNotLost(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		client, ctx := kubernetes.NewForConfigOrDie(cfg), timeoutContext(t)
		maps := client.CoreV1().ConfigMaps("default")
		if _, err := maps.Create(ctx, configMap("count"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		const people, times = 8, 20
		var wg sync.WaitGroup
		for range people {
			wg.Go(func() {
				for done := 0; done < times; {
					m, err := maps.Get(ctx, "count", metav1.GetOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					n, _ := strconv.Atoi(m.Data["n"])
					m.Data["n"] = strconv.Itoa(n + 1)
					if _, err = maps.Update(ctx, m, metav1.UpdateOptions{}); err == nil {
						done++
					} else if !apierrors.IsConflict(err) {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		m, err := maps.Get(ctx, "count", metav1.GetOptions{})
		if err != nil || m.Data["n"] != strconv.Itoa(people*times) {
			t.Errorf("count is %v, %v", m.Data, err)
		}
	})
}

// watchHistory holds the events of a watch, and checks them as they arrive.
type watchHistory struct {
	t    *testing.T
	last int64
	seen map[string]map[int64]bool // by name: the revisions of its events
	live map[string]int64
}

func (h *watchHistory) addEvent(e watch.Event) bool {
	m, ok := e.Object.(*corev1.ConfigMap)
	if !ok {
		h.t.Errorf("event %+v", e)
		return false
	}
	rev := parseRevision(h.t, m.ResourceVersion)
	if rev <= h.last {
		h.t.Errorf("%s of %s at %d came after %d", e.Type, m.Name, rev, h.last)
	}
	h.last = rev
	if h.seen[m.Name] == nil {
		h.seen[m.Name] = map[int64]bool{}
	}
	h.seen[m.Name][rev] = true
	_, exists := h.live[m.Name]
	switch e.Type {
	case watch.Added, watch.Modified:
		if exists != (e.Type == watch.Modified) {
			h.t.Errorf("%s of %s, which was there: %v", e.Type, m.Name, exists)
		}
		h.live[m.Name] = rev
	case watch.Deleted:
		delete(h.live, m.Name)
	}
	return true
}

// Proves S13.
func TestWatchersSeeEveryChangeInOrder(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		ctx, cancel := context.WithCancel(timeoutContext(t))
		defer cancel()
		client := kubernetes.NewForConfigOrDie(cfg)
		maps := client.CoreV1().ConfigMaps("default")
		list, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var histories []*watchHistory
		var wg sync.WaitGroup
		for i := range 4 {
			one := rest.CopyConfig(cfg)
			if i%2 == 1 {
				one.ContentType = "application/vnd.kubernetes.protobuf"
			}
			w, err := kubernetes.NewForConfigOrDie(one).
				CoreV1().
				ConfigMaps("default").
				Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			h := &watchHistory{t: t, seen: map[string]map[int64]bool{}, live: map[string]int64{}}
			histories = append(histories, h)
			wg.Go(func() {
				defer w.Stop()
				for e := range w.ResultChan() {
					if !h.addEvent(e) || h.live["end"] != 0 {
						return
					}
				}
			})
		}
		written := writeRandomly(t, ctx, client)
		if _, err := maps.Create(ctx, configMap("end"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for i, h := range histories {
			for name, revisions := range written {
				for _, rev := range revisions {
					if !h.seen[name][rev] {
						t.Errorf("watch %d lacks the event of %s at %d", i, name, rev)
					}
				}
			}
		}
	})
}

// writeRandomly makes random changes from several clients. It returns the revisions of the writes that left an object.
func writeRandomly(t *testing.T, ctx context.Context, client kubernetes.Interface) map[string][]int64 {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("default")
	var mu sync.Mutex
	written := map[string][]int64{}
	var wg sync.WaitGroup
	for person := range 4 {
		wg.Go(func() {
			for i := range 40 {
				name := fmt.Sprintf("m%d", (person+rand.IntN(3))%5)
				m, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					if rand.IntN(4) == 0 {
						if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil &&
							!apierrors.IsNotFound(err) {
							t.Error(err)
						}
						continue
					}
					m, err = maps.Patch(ctx, name, "application/merge-patch+json",
						fmt.Appendf(nil, `{"data":{"n":"%d-%d"}}`, person, i), metav1.PatchOptions{})
				}
				if apierrors.IsNotFound(err) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				written[name] = append(written[name], parseRevision(t, m.ResourceVersion))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return written
}

func TestInformersReceiveChanges(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		ctx, cancel := context.WithCancel(timeoutContext(t))
		client := kubernetes.NewForConfigOrDie(cfg)
		factory := informers.New(ownclients.NewForConfigOrDie(cfg))
		informer := informers.ConfigMaps(factory).Informer()
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
		defer cancel()
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("never synced")
		}
		writeRandomly(t, ctx, client)
		waitUntil(t, func() error {
			list, err := client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			if got := informer.GetStore().ListKeys(); len(got) != len(list.Items) {
				return fmt.Errorf("the informer has %v, the list %d", got, len(list.Items))
			}
			for _, m := range list.Items {
				obj, ok, err := informer.GetStore().GetByKey("default/" + m.Name)
				if err != nil || !ok || obj.(*corev1.ConfigMap).ResourceVersion != m.ResourceVersion {
					return fmt.Errorf("the informer has another %s", m.Name)
				}
			}
			return nil
		})
	})
}

func TestWatchesFollowTheirSelectors(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		ctx, cancel := context.WithCancel(timeoutContext(t))
		defer cancel()
		maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "a=b"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		byName, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=two"})
		if err != nil {
			t.Fatal(err)
		}
		defer byName.Stop()
		for _, name := range []string{"one", "two"} {
			if _, err := maps.Create(ctx, configMap(name), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, patch := range []string{`{"metadata":{"labels":{"a":"b"}}}`, `{"data":{"n":"1"}}`, `{"metadata":{"labels":{"a":null}}}`} {
			if _, err := maps.Patch(ctx, "one", "application/merge-patch+json", []byte(patch),
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
			e := <-w.ResultChan()
			if m, ok := e.Object.(*corev1.ConfigMap); !ok || e.Type != want || m.Name != "one" {
				t.Errorf("the event is %+v, want %s", e, want)
			}
		}
		if e := <-byName.ResultChan(); e.Object.(*corev1.ConfigMap).Name != "two" {
			t.Errorf("the event is %+v", e)
		}
		if _, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nope=1"}); !apierrors.IsBadRequest(err) {
			t.Errorf("an unknown field: %v", err)
		}
	})
}

func TestWatchListSendsABookmarkAfterInitialEvents(t *testing.T) {
	overStores(t, func(t *testing.T, cfg *rest.Config) {
		ctx, cancel := context.WithCancel(timeoutContext(t))
		defer cancel()
		maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		if _, err := maps.Create(ctx, configMap("a"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		yes := true
		w, err := maps.Watch(
			ctx,
			metav1.ListOptions{
				SendInitialEvents:    &yes,
				AllowWatchBookmarks:  true,
				ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if e := <-w.ResultChan(); e.Type != watch.Added {
			t.Errorf("first %+v", e)
		}
		e := <-w.ResultChan()
		if m, ok := e.Object.(*corev1.ConfigMap); !ok || e.Type != watch.Bookmark ||
			m.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("second %+v", e)
		}
	})
}

func TestUnavailableRevisionsAreRejected(t *testing.T) {
	s := stores["memory"](t)
	first := startConfig(t, s, nil)
	createConfigMaps(t, timeoutContext(t), kubernetes.NewForConfigOrDie(first), 1)
	// Another server starts from the store's current state, so earlier revisions are not in its log.
	cfg := startConfig(t, s, nil)
	answer, data := sendRaw(t, cfg, "GET", "/api/v1/configmaps?watch=1&resourceVersion=1", "", nil)
	if answer.StatusCode != 410 || !strings.Contains(string(data), string(metav1.StatusReasonExpired)) {
		t.Errorf("watch from the beginning: %d %s", answer.StatusCode, data)
	}
	answer, data = sendRaw(t, cfg, "GET", "/api/v1/configmaps?resourceVersion=99999999", "", nil)
	if answer.StatusCode != 504 || !strings.Contains(string(data), string(metav1.CauseTypeResourceVersionTooLarge)) {
		t.Errorf("list at a future revision: %d %s", answer.StatusCode, data)
	}
}
