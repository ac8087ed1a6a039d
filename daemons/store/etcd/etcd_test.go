package etcd_test

import (
	"strings"
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/storetest"
)

// A member's plain address works as well as a URL.
func TestEndpointsMayLackAScheme(t *testing.T) {
	s, err := etcd.Open(etcd.Config{Endpoints: []string{strings.TrimPrefix(storetest.Etcd(t), "http://")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if r, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: "/a", Value: []byte("b")}}}); err != nil ||
		!r.Done {
		t.Fatalf("commit: %+v, %v", r, err)
	}
	if kv, err := s.Get(t.Context(), "/a"); err != nil || kv == nil || string(kv.Value) != "b" {
		t.Errorf("get: %+v, %v", kv, err)
	}
	if w := <-storetest.Watch(t.Context(), s, "/", 1); w.Err != nil || len(w.Events) != 1 || w.Events[0].Key != "/a" {
		t.Errorf("watch: %+v", w)
	}
}

func TestInvalidEndpointsAreRejected(t *testing.T) {
	for _, endpoint := range []string{"unix:///run/etcd.sock", "ftp://127.0.0.1:1", "http://", "a b"} {
		if _, err := etcd.Open(etcd.Config{Endpoints: []string{endpoint}}); err == nil ||
			!strings.Contains(err.Error(), endpoint) {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

func TestEtcdBehavesAsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := etcd.Open(etcd.Config{Endpoints: []string{storetest.Etcd(t)}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
