package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clusterctl/hcl/load"
	"clusterctl/provision/workload"
)

// BenchmarkLanguage reads and validates configurations of many blocks, and works out the objects that their
// workloads are, which is what a plan does before it asks any machine. Time and memory grow with the number of blocks.
func BenchmarkLanguage(b *testing.B) {
	for _, size := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("machines=%d", size), func(b *testing.B) { benchmarkLoad(b, machines(size)) })
		b.Run(fmt.Sprintf("references=%d", size), func(b *testing.B) { benchmarkLoad(b, chained(size)) })
	}
	for _, size := range []int{500, 5000} {
		b.Run(fmt.Sprintf("workloads=%d", size), func(b *testing.B) { benchmarkLoad(b, workloads(size)) })
		b.Run(fmt.Sprintf("objects=%d", size), func(b *testing.B) { benchmarkLoad(b, objects(size)) })
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

const head = `cluster "c" { pod_cidrs = ["100.64.0.0/10"] }
machine "control" {
  address = "192.0.2.1"
  roles   = ["control-plane"]
}
locals {
  roles = ["node"]
  image = "nginx:1"
}
`

func address(n int) string { return fmt.Sprintf("10.%d.%d.%d", n/50000, n/250%200, n%250+1) }

func machines(n int) string {
	var out strings.Builder
	out.WriteString(head)
	for i := range n {
		fmt.Fprintf(&out, "machine \"m%d\" {\n  address = %q\n  roles = local.roles\n  labels = { n = \"%d\" }\n}\n", i, address(i), i)
	}
	return out.String()
}

// chained is machines of which each refers to the one before, and outputs that refer to all.
func chained(n int) string {
	var out strings.Builder
	out.WriteString(head)
	for i := range n {
		before := "control"
		if i%100 != 0 {
			before = fmt.Sprintf("m%d", i-1)
		}
		fmt.Fprintf(&out, "machine \"m%d\" {\n  address = %q\n  roles = local.roles\n  labels = { before = machine.%s.name }\n}\n", i, address(i), before)
	}
	for i := range 10 {
		fmt.Fprintf(&out, "output \"all%d\" { value = [for m in machine : m.name] }\n", i)
	}
	return out.String()
}

func workloads(n int) string {
	var out strings.Builder
	out.WriteString(head)
	for i := range n {
		fmt.Fprintf(&out, `workload "w%d" {
  replicas = 2
  container "web" {
    image     = local.image
    ports     = { http = 80 }
    requests  = { cpu = "100m", memory = "64Mi" }
    readiness = { http = "/" }
  }
  service { ports = { http = 80 } }
}
`, i)
	}
	return out.String()
}

func objects(n int) string {
	var out strings.Builder
	out.WriteString(head)
	for i := range n {
		fmt.Fprintf(&out, "object \"v1\" \"ConfigMap\" \"c%d\" {\n  namespace = \"shop\"\n  data = { key = local.image, n = \"%d\" }\n}\n", i, i)
	}
	return out.String()
}
