package gitopstest

import "testing"

func TestTheFakeClusterBehavesLikeTheRealOne(t *testing.T) {
	RunAppliers(t, func(*testing.T) Backend { return NewCluster() })
}
