// Package configs writes configurations of any size, for benchmarks.
package configs

import (
	"fmt"
	"strings"
)

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

func machineAddress(n int) string { return fmt.Sprintf("10.%d.%d.%d", n/50000, n/250%200, n%250+1) }

// Machines returns a configuration with a control plane and n nodes, each in its own block.
func Machines(n int) string {
	var out strings.Builder
	out.WriteString(head)
	for i := range n {
		fmt.Fprintf(&out, "machine \"m%d\" {\n  address = %q\n  roles = local.roles\n  labels = { n = \"%d\" }\n}\n", i,
			machineAddress(i), i)
	}
	return out.String()
}

// Chained returns a configuration in which each machine refers to the previous one, and outputs refer to all.
func Chained(n int) string {
	var out strings.Builder
	out.WriteString(head)
	for i := range n {
		before := "control"
		if i%100 != 0 {
			before = fmt.Sprintf("m%d", i-1)
		}
		fmt.Fprintf(&out,
			"machine \"m%d\" {\n  address = %q\n  roles = local.roles\n  labels = { before = machine.%s.name }\n}\n", i,
			machineAddress(i), before)
	}
	for i := range 10 {
		fmt.Fprintf(&out, "output \"all%d\" { value = [for m in machine : m.name] }\n", i)
	}
	return out.String()
}

// Workloads returns the configuration of a cluster of one machine and n workloads.
func Workloads(n int) string {
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

// Objects returns the configuration of a cluster of one machine and n objects.
func Objects(n int) string {
	var out strings.Builder
	out.WriteString(head)
	for i := range n {
		fmt.Fprintf(&out, "object \"v1\" \"ConfigMap\" \"c%d\" {\n  namespace = \"shop\"\n  data = { key = "+
			"local.image, n = \"%d\" }\n}\n", i, i)
	}
	return out.String()
}

// ConfigMaps returns n object blocks in the namespace many, without a cluster block.
func ConfigMaps(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "object \"v1\" \"ConfigMap\" \"c%d\" {\n  namespace = \"many\"\n  data = { n = \"%d\", key "+
			"= \"a value of some length, as configurations have\" }\n}\n", i, i)
	}
	return out.String()
}
