package memory_test

import (
	"testing"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
	"clusterctl/daemons/store/storetest"
)

func TestMemoryBehavesAsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s := memory.New()
		t.Cleanup(s.Close)
		return s
	})
}
