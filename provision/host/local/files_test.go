package local_test

import (
	"testing"

	"clusterctl/provision/host/hosttest"
	"clusterctl/provision/host/local"
)

func TestFiles(t *testing.T) { hosttest.Files(t, &local.Host{}, t.TempDir()) }
