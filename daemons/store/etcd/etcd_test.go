package etcd_test

import (
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/storetest"
)

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
