package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

func podKind() *kinds.Kind {
	return &kinds.Kind{
		GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: "pods", Namespaced: true,
		New:     func() runtime.Object { return &corev1.Pod{} },
		NewList: func() runtime.Object { return &corev1.PodList{} },
		Fields: func(obj runtime.Object) fields.Set {
			return fields.Set{"spec.nodeName": obj.(*corev1.Pod).Spec.NodeName}
		},
		IndexedFields: []string{"spec.nodeName"},
	}
}

func mustEntry(t interface{ Fatal(...any) }, k *kinds.Kind, key, node string, revision int64) *Entry {
	namespace, name, _ := strings.Cut(key, "/")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node},
	}
	data, err := Encode(k, pod)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEntry(k, key, data, revision, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// modelState is the content of a model of the cache: key to revision and node.
type modelState map[string][2]string

// contents returns the content of a snapshot, read as a whole and namespace by namespace.
func (s *Snapshot) contents() (all, byNamespace modelState) {
	all, byNamespace = modelState{}, modelState{}
	collect := func(prefix string, to modelState) {
		s.Ascend(prefix, "", func(e *Entry) bool {
			node, _ := e.Field("spec.nodeName")
			to[e.Key] = [2]string{fmt.Sprint(e.Revision), node}
			return true
		})
	}
	collect("", all)
	for _, prefix := range []string{"a/", "aa/", "b/"} {
		collect(prefix, byNamespace)
	}
	return all, byNamespace
}

func TestSnapshotsAndCursorsAgreeWithAModel(t *testing.T) {
	k := podKind()
	rapid.Check(t, func(t *rapid.T) {
		r := newResource(k, &budget{})
		model, past := modelState{}, map[int64]modelState{0: {}}
		var readers []*testReader
		for revision := int64(1); revision <= int64(rapid.IntRange(1, 40).Draw(t, "revisions")); revision++ {
			if rapid.Bool().Draw(t, "watch") {
				topic := rapid.SampledFrom([]Topic{{}, {Namespace: "a"}, {Key: "b/x"}, {Field: 1, Value: "n1"}}).
					Draw(t, "topic")
				c, err := r.Watch(topic, revision-1)
				if err != nil {
					t.Fatal(err)
				}
				readers = append(readers, &testReader{topic: topic, cursor: c})
			}
			key := rapid.SampledFrom([]string{"a/x", "a/y", "b/x", "b/y"}).Draw(t, "key")
			before, existed := model[key]
			node := rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")
			c := resourceChange{key: key, revision: revision}
			if isGone := existed && rapid.Bool().Draw(t, "delete"); isGone {
				delete(model, key)
				node = ""
			} else {
				c.entry = mustEntry(t, k, key, node, revision)
				model[key] = [2]string{fmt.Sprint(revision), node}
			}
			r.apply([]resourceChange{c})
			if rapid.IntRange(0, 4).Draw(t, "rest") == 0 {
				r.pack()
			}
			past[revision] = maps.Clone(model)
			for _, rd := range readers {
				concerned := rd.topic == Topic{} || rd.topic.Namespace != "" &&
					strings.HasPrefix(key, rd.topic.Namespace+"/") ||
					rd.topic.Key == key ||
					rd.topic.Field == 1 && (node == "n1" || existed && before[1] == "n1")
				if concerned {
					rd.want = append(rd.want, revision)
				}
				if rapid.Bool().Draw(t, "read") {
					rd.read(t)
				}
			}
		}
		checkPast(t, r, past)
		byNode := modelState{}
		r.Snapshot().AscendField("spec.nodeName", "n1", "", "", func(e *Entry) bool {
			byNode[e.Key] = model[e.Key]
			return true
		})
		for key, v := range model {
			if _, ok := byNode[key]; ok != (v[1] == "n1") {
				t.Fatalf("index has %v of %v", byNode, model)
			}
		}
		for _, rd := range readers {
			rd.read(t)
			if !slices.Equal(rd.got, rd.want) {
				t.Fatalf("%+v received %v, want %v", rd.topic, rd.got, rd.want)
			}
			rd.cursor.Close()
		}
		if n := len(r.topics.byKey) + len(r.topics.byNamespace) + len(r.topics.byField[0]); n != 0 {
			t.Fatalf("%d topics are left", n)
		}
	})
}

// checkPast compares the snapshots of past revisions with the model.
func checkPast(t *rapid.T, r *Resource, past map[int64]modelState) {
	for revision, want := range past {
		s, err := r.SnapshotAt(revision)
		if err != nil {
			t.Fatal(err)
		}
		if all, byNamespace := s.contents(); !maps.Equal(all, want) || !maps.Equal(byNamespace, want) {
			t.Fatalf("at %d: %v and %v, want %v", revision, all, byNamespace, want)
		}
		for _, namespace := range []string{"", "a", "b"} {
			n := 0
			for key := range want {
				if namespace == "" || strings.HasPrefix(key, namespace+"/") {
					n++
				}
			}
			if s.Count(namespace) != n {
				t.Fatalf("at %d there are %d in %q, want %d", revision, s.Count(namespace), namespace, n)
			}
		}
	}
}

// testReader is a watch, with the events that it got and those that it should have got.
type testReader struct {
	topic     Topic
	cursor    *Cursor
	got, want []int64
}

func (r *testReader) read(t *rapid.T) {
	events, _, err := r.cursor.Next()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		r.got = append(r.got, e.Revision)
	}
}

func TestSlowCursorsExpire(t *testing.T) {
	k := podKind()
	r := newResource(k, &budget{})
	all, err := r.Watch(Topic{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := r.Watch(Topic{Namespace: "a"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	quiet, err := r.Watch(Topic{Namespace: "b"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := mustEntry(t, k, "a/x", "", 1)
	for revision := int64(1); revision <= 2*maxLogBytes/eventCost; revision++ {
		r.apply([]resourceChange{{key: "a/x", revision: revision, entry: e.withRevision(revision)}})
	}
	for _, c := range []*Cursor{all, ns} {
		if _, _, err := c.Next(); !errors.Is(err, ErrExpired) {
			t.Errorf("slow cursor: %v", err)
		}
	}
	if events, _, err := quiet.Next(); err != nil || len(events) != 0 {
		t.Errorf("a watcher of another namespace: %v", err)
	}
	if _, err := r.Watch(Topic{}, 1); !errors.Is(err, ErrExpired) {
		t.Errorf("watch from long ago: %v", err)
	}
	if _, err := r.SnapshotAt(1); !errors.Is(err, ErrExpired) {
		t.Errorf("list of long ago: %v", err)
	}
}

func TestJSONHasTheResourceVersion(t *testing.T) {
	k := podKind()
	e := mustEntry(t, k, "a/x", "n", 42)
	var pod corev1.Pod
	if err := json.Unmarshal(e.AppendJSON(nil), &pod); err != nil || pod.ResourceVersion != "42" || pod.Name != "x" ||
		pod.Spec.NodeName != "n" {
		t.Errorf("ours: %s, %v", e.AppendJSON(nil), err)
	}
	foreign := `{ "metadata" : {"resourceVersion":"7","name":"x","namespace":"a","annotations":{"q":"a\"}{"}}, "kind":"Pod","apiVersion":"v1"}`
	e, err := NewEntry(k, "a/x", []byte(foreign), 43, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(e.AppendJSON(nil), &pod); err != nil || pod.ResourceVersion != "43" ||
		pod.Annotations["q"] != `a"}{` {
		t.Errorf("foreign: %s, %v", e.AppendJSON(nil), err)
	}
	var meta metav1.ObjectMeta
	if err := json.Unmarshal(e.AppendMetadata(nil), &meta); err != nil || meta.ResourceVersion != "43" ||
		meta.Annotations["q"] != `a"}{` {
		t.Errorf("metadata: %s, %v", e.AppendMetadata(nil), err)
	}
}

func TestReadsSeeAllEarlierWrites(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	k := podKind()
	c := New(s, "/registry", []*kinds.Kind{k}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	r := c.Resource(k.GR())
	for i := range 200 {
		key := fmt.Sprintf("a/p%d", i)
		data := mustEntry(t, k, key, "", 0).JSON()
		if _, err := s.Commit(ctx,
			store.Txn{Puts: []store.Put{{Key: c.Key(k, key), Value: data}, {Key: "/elsewhere"}}}); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 { // the cache's watch does not receive this revision
			if _, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "/elsewhere"}}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.WaitForCurrent(ctx); err != nil || r.Get(key) == nil {
			t.Fatalf("%s was written and is not read: %v", key, err)
		}
	}
}
