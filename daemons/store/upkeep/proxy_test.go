package upkeep

import (
	"context"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"clusterctl/daemons/config/store"
)

// The proxy in the environment is for the object store of snapshots and cannot reach etcd members. Go reads the proxy
// variables once per process, so a second process connects.
func TestMembersAreReachedWithoutAProxy(t *testing.T) {
	if os.Getenv("CONNECT_BY_PROXY") != "" {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		client, err := Connect(ctx, store.Client{}, "http://192.0.2.1:2379") // no machine has this address
		if err != nil {
			return
		}
		defer func() { _ = client.Close() }()
		_, _ = client.MemberList(ctx)
		return
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = proxy.Close() }()
	var requests atomic.Int32
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			requests.Add(1)
			_ = conn.Close()
		}
	}()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), "CONNECT_BY_PROXY=1", "HTTPS_PROXY=http://"+proxy.Addr().String(), "NO_PROXY=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("the proxy got %d connections for a member", n)
	}
}
