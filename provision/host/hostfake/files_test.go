package hostfake_test

import (
	"testing"

	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/host/hosttest"
)

func TestFiles(t *testing.T) { hosttest.Files(t, &hostfake.Host{}, "/root") }
