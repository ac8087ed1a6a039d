package sealed

import (
	"context"
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// stuck is a store whose next commit waits until the test allows it.
type stuck struct {
	store.Store
	begun, goes chan struct{}
}

func (s *stuck) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	if begun := s.begun; begun != nil {
		s.begun = nil
		close(begun)
		<-s.goes
	}
	return s.Store.Commit(ctx, t)
}

// A write that the store does not answer blocks neither reads nor writes with other keys. The reload is reported as
// done when the write is over.
func TestAReloadIsInNobodysWayWhileTheStoreIsSlow(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	slow := &stuck{Store: inner}
	s := open(t, slow, document("secretbox a A", "identity"))
	put := func(key string) error {
		_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: key, Value: []byte("v")}}})
		return err
	}
	if err := put("/registry/secrets/x"); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	slow.begun, slow.goes = begun, make(chan struct{})
	hangs := make(chan error, 1)
	go func() { hangs <- put("/registry/secrets/y") }()
	<-begun
	write(t, s.File, document("secretbox b B", "secretbox a A", "identity"))
	reload := make(chan error, 1)
	go func() { reload <- s.Reload() }()
	for range 100 { // before, during and after the change
		if kv, err := s.Get(t.Context(), "/registry/secrets/x"); err != nil || string(kv.Value) != "v" {
			t.Fatal(kv, err)
		}
		if err := put("/registry/secrets/z"); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-reload; err == nil {
		t.Error("the former key is said to be out of use while a write with it is under way")
	}
	close(slow.goes)
	if err := <-hangs; err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Error(err)
	}
}
