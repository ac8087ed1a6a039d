package interrupt

import "fmt"

// declaredConfig is the content of the configuration.
type declaredConfig struct {
	hasNodeB, isDestroying bool // node b is declared; the cluster is being destroyed
	changes                int  // number of changes
}

// operation is an operation that is interrupted.
type operation struct {
	name  string
	apply func(w *world)
}

// operations are listed in an order that can be repeated.
var operations = []operation{
	{"create", func(w *world) { w.hasNodeB, w.isDestroying = true, false; w.write() }},
	{"change", makeChange},
	{"remove", func(w *world) { w.hasNodeB = false; w.write() }},
	{"add", func(w *world) { w.hasNodeB = true; w.write() }},
	{"change", makeChange},
	{"remove", func(w *world) { w.hasNodeB = false; w.write() }},
	{"add", func(w *world) { w.hasNodeB = true; w.write() }},
	{"change", makeChange},
	{"destroy", func(w *world) { w.isDestroying = true }},
}

func (o operation) command() string {
	if o.name == "destroy" {
		return "destroy"
	}
	return "apply"
}

func makeChange(w *world) { w.changes++; w.write() }

// write writes the configuration. A turn changes the nodes' kubelets, the workload's pods, an object, and the set of
// objects.
func (w *world) write() {
	nodes := `a = "10.99.0.21"`
	if w.hasNodeB {
		nodes += "\n    b = \"10.99.0.22\""
	}
	text := fmt.Sprintf(`cluster "small" {}

locals {
  nodes = {
    %s
  }
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh { user = "root" }
}

machine "node" {
  for_each = local.nodes
  address  = each.value
  roles    = ["node"]
  kubelet { max_pods = %d }
  ssh { user = "root" }
}

image "web" { archive = "images/web.tar" }

object "v1" "Namespace" "shop" {}

object "v1" "ConfigMap" "turn-%d" {
  namespace = "shop"
  data      = { turn = "%d" }
}

workload "web" {
  namespace = "shop"
  replicas  = %d

  container "web" {
    image     = image.web.reference
    ports     = { http = 8080 }
    env       = { GREETING = "turn %d" }
    requests  = { cpu = "10m", memory = "16Mi" }
    readiness = { http = "/healthz", port = "http", period = 2 }
  }
  service { ports = { http = 80 } }
}
`, nodes, 100+w.changes, w.changes%3, w.changes, 2+w.changes%2, w.changes)
	if err := w.Write("cluster.hcl", text); err != nil {
		w.t.Fatal(err)
	}
}
