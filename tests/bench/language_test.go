package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"clusterctl/hcl/load"
	"clusterctl/provision/workload"
	"clusterctl/tests/bench/configs"
)

// BenchmarkLanguage loads and validates configurations of many blocks, and derives the objects of their workloads. A
// plan does this before it connects to machines. Time and memory grow with the number of blocks.
func BenchmarkLanguage(b *testing.B) {
	for _, size := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("machines=%d", size), func(b *testing.B) { benchmarkLoad(b, configs.Machines(size)) })
		b.Run(fmt.Sprintf("references=%d", size), func(b *testing.B) { benchmarkLoad(b, configs.Chained(size)) })
	}
	for _, size := range []int{500, 5000} {
		b.Run(fmt.Sprintf("workloads=%d", size), func(b *testing.B) { benchmarkLoad(b, configs.Workloads(size)) })
		b.Run(fmt.Sprintf("objects=%d", size), func(b *testing.B) { benchmarkLoad(b, configs.Objects(size)) })
	}
}

func benchmarkLoad(b *testing.B, text string) {
	path := filepath.Join(b.TempDir(), "cluster.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c, diags := load.Load(load.Options{Path: path})
		if diags.HasErrors() {
			b.Fatal(diags)
		}
		if _, err := workload.Objects(c.Cluster); err != nil {
			b.Fatal(err)
		}
	}
}
