package garbage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/controllers/loop"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

var configMapKind = &served{configMaps, "ConfigMap"}

// server holds objects of one kind in one namespace, and counts requests.
type server struct {
	mu            sync.Mutex
	objects       map[string]*metav1.PartialObjectMetadata
	requestCounts map[string]int // by method
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requestCounts[r.Method]++
	name := path.Base(r.URL.Path)
	answer := func(err *apierrors.StatusError) {
		err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(err.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(err.ErrStatus)
	}
	got := s.objects[name]
	if got == nil {
		answer(apierrors.NewNotFound(configMaps.GroupResource(), name))
		return
	}
	if r.Method == http.MethodDelete {
		var o metav1.DeleteOptions
		_ = json.NewDecoder(r.Body).Decode(&o)
		if p := o.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil || *p.UID != got.UID ||
			*p.ResourceVersion != got.ResourceVersion {
			answer(apierrors.NewConflict(configMaps.GroupResource(), name,
				fmt.Errorf("the precondition does not match")))
			return
		}
		delete(s.objects, name)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(got)
}

// newOwnerWithDependents returns a collector with n dependents of an owner that is not in its graph, and the server
// that holds them.
func newOwnerWithDependents(t *testing.T, n int) (*controller, *server) {
	t.Helper()
	s := &server{objects: map[string]*metav1.PartialObjectMetadata{}, requestCounts: map[string]int{}}
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	g, ok := New(loop.Context{Metadata: metadata.NewForConfigOrDie(&rest.Config{Host: listener.URL,
		QPS: -1})}).(*controller)
	if !ok {
		t.Fatal("it is no collector")
	}
	kind := schema.GroupKind{Kind: "ConfigMap"}
	g.byKind[kind], g.isNamespaced[kind] = configMaps, true
	for i := range n {
		m := &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "d" + strconv.Itoa(
					i,
				), Namespace: "default", UID: types.UID(strconv.Itoa(i)), ResourceVersion: strconv.Itoa(i + 1),
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"},
				}},
		}
		s.objects[m.Name] = m
		g.objectChanged(configMapKind, nil, g.interner.intern(m.DeepCopy()))
	}
	return g, s
}

// Each of many dependents costs one request, its DELETE. Their owner is looked up once, or at most once per worker.
// Proves S21.
func TestManyDependentsCostOneRequestEach(t *testing.T) {
	const n = 10_000
	g, s := newOwnerWithDependents(t, n)
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < n; i += workers {
				if err := g.sync(t.Context(), types.UID(strconv.Itoa(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(s.objects) > 0 {
		t.Errorf("%d are left", len(s.objects))
	}
	if s.requestCounts[http.MethodDelete] != n || s.requestCounts[http.MethodGet] > workers {
		t.Errorf("%v requests for %d dependents", s.requestCounts, n)
	}
}

// The graph may be stale, so the server decides. A dependent with other owners is retained, and one with other changes
// is deleted.
// Proves S21.
func TestChangedDependentsAreCheckedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*metav1.PartialObjectMetadata)
		deleted bool
		again   bool
	}{
		"its labels": {func(m *metav1.PartialObjectMetadata) { m.Labels = map[string]string{"a": "b"} }, true,
			false},
		"another owner": {func(m *metav1.PartialObjectMetadata) { m.OwnerReferences[0].UID = "other" }, false,
			true},
		"no owner": {func(m *metav1.PartialObjectMetadata) { m.OwnerReferences = nil }, false, true},
		"a finalizer": {func(m *metav1.PartialObjectMetadata) {
			m.Finalizers = []string{
				metav1.FinalizerOrphanDependents}
		}, false, true},
		"another of that name": {func(m *metav1.PartialObjectMetadata) { m.UID = "another" }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := newOwnerWithDependents(t, 1)
			s.objects["d0"].ResourceVersion = "99"
			c.change(s.objects["d0"])
			err := g.sync(t.Context(), "0")
			if apierrors.IsConflict(err) != c.again || err != nil && !c.again {
				t.Errorf("it ends with %v", err)
			}
			if (s.objects["d0"] == nil) != c.deleted {
				t.Errorf("deleted: %v", !c.deleted)
			}
		})
	}
}

// A recorded absence holds only for one place. The owner still exists if it was looked up elsewhere.
// Proves S21.
func TestAbsencesHoldForOneLocation(t *testing.T) {
	g, s := newOwnerWithDependents(t, 1)
	g.absences.add(ownerLocation{configMaps, "elsewhere", "owner", "owner"})
	s.objects["owner"] = &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "owner"},
	}
	if err := g.sync(t.Context(), "0"); err != nil || s.objects["d0"] == nil {
		t.Errorf("it was deleted although its owner is there: %v", err)
	}
	s.objects["owner"].UID = "next"
	if err := g.sync(t.Context(), "0"); err != nil || s.objects["d0"] != nil {
		t.Errorf("it stays although another has its owner's name: %v", err)
	}
}

// After an interrupted watch, an update may be about another object of the same name. The first object then counts as
// gone.
// Proves S21.
func TestANewUIDMeansThatTheOldObjectIsGone(t *testing.T) {
	g, s := newOwnerWithDependents(t, 1)
	owner := &minimalMetadata{namespace: "default", name: "owner", uid: "owner"}
	g.objectChanged(configMapKind, nil, owner)
	if err := g.sync(t.Context(), "0"); err != nil || s.objects["d0"] == nil {
		t.Fatalf("it was deleted although its owner is there: %v", err)
	}
	g.objectChanged(configMapKind, owner, &minimalMetadata{namespace: "default", name: "owner", uid: "next"})
	if g.Queue().Len() == 0 {
		t.Error("the dependents of the first owner are not examined")
	}
	if err := g.sync(t.Context(), "0"); err != nil || s.objects["d0"] != nil {
		t.Errorf("it stays although its owner is gone: %v", err)
	}
}

// For an object in a shared cache, the graph holds only a pointer to its metadata.
func TestTheGraphSharesMetadataWithCaches(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "1"}}
	if m, ok := metaOf(pod).(*metav1.ObjectMeta); !ok || m != &pod.ObjectMeta {
		t.Error("it is a copy")
	}
	if metaOf(nil) != nil {
		t.Error("nothing has metadata")
	}
}
