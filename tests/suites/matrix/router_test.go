package matrix

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// birdConfig configures a router between machines that learns addresses from them, and forwards to all routes at once.
const birdConfig = `
router id 10.99.0.1;
protocol device {}
protocol direct { ipv4; ipv6; interface "br*"; }
protocol kernel { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel { merge paths on; ipv6 { import none; export where source = RTS_BGP; }; }
template bgp machine {
  local 10.99.0.1 as 64512;
  multihop 2; passive on; hold time 3; error wait time 1, 2; graceful restart on;
  ipv4 { import all; export none; };
  ipv6 { import all; export none; };
}
protocol bgp a from machine { neighbor 10.99.0.21 as 64513; }
protocol bgp b from machine { neighbor 10.99.1.22 as 64513; }
`

// startRouter runs BIRD, from Debian's package bird2, in the lab's network until the test ends.
func startRouter(t *testing.T, w *world) {
	t.Helper()
	file := func(name string) string { return filepath.Join(w.Lab.Home(), name) }
	if err := os.WriteFile(file("bird.conf"), []byte(birdConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := w.Lab.Command(t.Context(), "bird", "-f", "-c", file("bird.conf"), "-s", file("bird.ctl"), "-P",
		file("bird.pid"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("start BIRD: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	if err := cluster.Eventually(t.Context(), 20*time.Second, func(ctx context.Context) error {
		_, err := cluster.Output(w.Lab.Command(ctx, "birdc", "-s", file("bird.ctl"), "show", "status"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
