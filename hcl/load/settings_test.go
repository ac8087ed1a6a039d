package load_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/load"
)

func mustLoad(t *testing.T, files map[string]string) *load.Configuration {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, diags := load.Load(load.Options{Path: dir})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return c
}

const settingsJSON = `{
  "cluster": {"home": {
    "controllers": {"node_monitor_period": "2s", "unhealthy_zone_threshold": 0.5, "controllers": ["*", "-job"]},
    "kubelet": {"max_pods": 40, "image_minimum_gc_age": "1h30m", "serialize_image_pulls": true, "system_reserved": {"cpu": "1"}},
    "dns": {"replicas": 3, "upstream": ["${var.server}"]},
    "ingress": {"class": "web", "default_class": false, "node_selector": {"edge": "yes"}, "http_port": 8080, "read_timeout": "2m"}
  }},
  "variable": {"server": {"default": "10.0.0.53"}},
  "machine": {"one": {"address": "10.0.0.1", "roles": ["control-plane", "node"], "kubelet": {"max_pods": "50"}}},
  "storage_class": {"local": {"default": true, "labels": {"a": "b"}, "allowed_topologies": {"zone": ["x", "y"]}}}
}`

const settingsHCL = `
cluster "home" {
  controllers {
    node_monitor_period      = "2s"
    unhealthy_zone_threshold = 0.5
    controllers              = ["*", "-job"]
  }
  kubelet {
    max_pods              = 40
    image_minimum_gc_age  = "1h30m"
    serialize_image_pulls = true
    system_reserved       = { cpu = 1 }
    eviction_hard         = null
  }
  ingress {
    class         = "web"
    default_class = false
    node_selector = { edge = "yes" }
    http_port     = 8080
    read_timeout  = "2m"
  }
  dynamic "dns" {
    for_each = [var.server]
    content {
      replicas = 3
      upstream = [dns.value]
    }
  }
}
variable "server" {
  default = "10.0.0.53"
}
machine "one" {
  address = "10.0.0.1"
  roles   = ["control-plane", "node"]
  dynamic "kubelet" {
    for_each = [50]
    content {
      max_pods = kubelet.value
    }
  }
}
storage_class "local" {
  default            = true
  labels             = { a = "b" }
  allowed_topologies = { zone = ["x", "y"] }
}
`

func TestSettingsAreReadInBothSyntaxes(t *testing.T) {
	for name, text := range map[string]string{"cluster.hcl": settingsHCL, "cluster.hcl.json": settingsJSON} {
		c := mustLoad(t, map[string]string{name: text}).Cluster
		manager, kubelet, dns := daemons.DefaultControllerManager(), daemons.DefaultKubeletSettings(),
			daemons.DefaultDNS()
		c.Controllers.Over(&manager)
		c.Kubelet.Over(&kubelet)
		c.DNS.Settings.Over(&dns)
		if manager.NodeMonitorPeriod != 2*time.Second || manager.UnhealthyZoneThreshold != 0.5 ||
			strings.Join(manager.Controllers, " ") != "* -job" {
			t.Errorf("%s: controllers %+v", name, manager)
		}
		if kubelet.MaxPods != 40 || kubelet.ImageMinimumGCAge.Duration != 90*time.Minute ||
			!*kubelet.SerializeImagePulls ||
			kubelet.SystemReserved["cpu"] != "1" ||
			len(kubelet.EvictionHard) != 4 {
			t.Errorf("%s: kubelet %+v", name, kubelet)
		}
		proxy := daemons.DefaultIngress()
		if in := c.Ingress; in == nil || in.Class != "web" || in.DefaultClass || in.NodeSelector["edge"] != "yes" {
			t.Errorf("%s: ingress %+v", name, in)
		} else if in.Settings.Over(&proxy); proxy.HTTPPort != 8080 || proxy.ReadTimeout != 2*time.Minute ||
			proxy.HTTPSPort != 443 {
			t.Errorf("%s: ingress %+v", name, proxy)
		}
		if c.DNS.Replicas != 3 || dns.Upstream[0] != "10.0.0.53" || len(c.Scheduler.Names()) > 0 {
			t.Errorf("%s: dns %+v", name, c.DNS)
		}
		if got := c.Machines[0].Kubelet.Names(); !reflect.DeepEqual(got, []string{"max_pods"}) {
			t.Errorf("%s: of the machine %v are chosen", name, got)
		}
	}
}

func TestStorageClassesAreObjectsOfTheCluster(t *testing.T) {
	c := mustLoad(t, map[string]string{"cluster.hcl": settingsHCL}).Cluster
	want := map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "clusterctl.local/directory",
		"metadata": map[string]any{
			"name":        "local",
			"labels":      map[string]any{"a": "b"},
			"annotations": map[string]any{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		"reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
		"allowedTopologies": []any{
			map[string]any{"matchLabelExpressions": []any{map[string]any{"key": "zone", "values": []any{"x", "y"}}}},
		},
	}
	if len(c.Objects) != 1 || c.Objects[0].Address != "storage_class.local" ||
		!reflect.DeepEqual(c.Objects[0].Content, want) {
		t.Errorf("got %+v", c.Objects)
	}
}
