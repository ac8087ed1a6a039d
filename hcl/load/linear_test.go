package load_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"clusterctl/hcl/load"
)

// Evaluating four times as many blocks takes about four times as much memory, not sixteen times.
func TestEvaluationIsLinearInTheNumberOfBlocks(t *testing.T) {
	cost := func(n int) uint64 {
		var text strings.Builder
		text.WriteString("cluster \"c\" {}\nlocals { roles = [\"control-plane\"] }\n")
		for i := range n {
			fmt.Fprintf(&text, "machine \"m%d\" {\n  address = \"192.0.%d.%d\"\n  roles = local.roles\n}\n", i, i/250,
				i%250+1)
			fmt.Fprintf(&text, "output \"o%d\" { value = machine.m%d.name }\n", i, i)
		}
		path := filepath.Join(t.TempDir(), "c.hcl")
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, diags := load.Load(load.Options{Path: path}); diags.HasErrors() {
			t.Fatal(diags)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	cost(10) // allocations that are made once
	few, many := cost(250), cost(1000)
	if many > 5*few {
		t.Errorf("%d bytes for 250 machines, %d for 1000: %.1f times as many", few, many, float64(many)/float64(few))
	}
}
