package sealed

import (
	"context"
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
)

// stuckStore is a store whose next commit waits until the test allows it.
type stuckStore struct {
	store.Store
	started, released chan struct{}
}

func (s *stuckStore) Commit(ctx context.Context, t store.Txn) (store.Result, error) {
	if started := s.started; started != nil {
		s.started = nil
		close(started)
		<-s.released
	}
	return s.Store.Commit(ctx, t)
}

// A write that the store does not answer blocks neither reads nor writes with other keys. The reload is reported as
// done when the write is over.
func TestReloadDoesNotBlockWhileCommitsHang(t *testing.T) {
	inner := memory.New()
	t.Cleanup(inner.Close)
	slow := &stuckStore{Store: inner}
	s := openStore(t, slow, encryptionDocument("secretbox a A", "identity"))
	put := func(key string) error {
		_, err := s.Commit(t.Context(), store.Txn{Puts: []store.Put{{Key: key, Value: []byte("v")}}})
		return err
	}
	if err := put("/registry/secrets/x"); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	slow.started, slow.released = started, make(chan struct{})
	hangs := make(chan error, 1)
	go func() { hangs <- put("/registry/secrets/y") }()
	<-started
	writeFile(t, s.File, encryptionDocument("secretbox b B", "secretbox a A", "identity"))
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
	close(slow.released)
	if err := <-hangs; err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Error(err)
	}
}
