# Every block of settings, of the cluster's daemons and of one machine's kubelet, and where claims get their volumes.

cluster "settings" {
  scheduler {
    config       = file("scheduler.yaml")
    bind_address = "0.0.0.0" # metrics; who may read them, the cluster's authorities decide
  }

  controllers {
    bind_address                                      = "0.0.0.0"
    node_cidr_mask_size                               = 25
    node_monitor_grace_period                         = "20s"
    terminated_pod_gc_threshold                       = 500
    cluster_signing_duration                          = "720h"
    horizontal_pod_autoscaler_downscale_stabilization = "2m"
  }

  kubelet {
    max_pods                        = 100
    pod_pids_limit                  = 4096
    system_reserved                 = { cpu = "200m", memory = "512Mi" }
    kube_reserved                   = { cpu = "100m", memory = "256Mi" }
    eviction_hard                   = { "memory.available" = "200Mi" }
    merge_default_eviction_settings = true
    image_gc_high_threshold_percent = 75
    image_gc_low_threshold_percent  = 60
    container_log_max_size          = "50Mi"
    container_log_max_files         = 3
  }

  proxy {
    mode                 = "nftables"
    node_port_addresses  = ["10.99.0.0/24"]
    metrics_bind_address = "0.0.0.0:10249"
  }

  network {
    mtu = 1400
  }

  dns {
    replicas  = 2
    upstream  = ["9.9.9.9", "149.112.112.112:53"]
    cache_ttl = "1m"
  }
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh {
    user = "root"
  }
}

machine "worker" {
  address = "10.99.0.12"
  roles   = ["node"]
  ssh {
    user = "root"
  }
}

machine "small" {
  address = "10.99.0.13"
  roles   = ["node"]
  ssh {
    user = "root"
  }
  kubelet {
    max_pods                        = 20 # the cluster's other settings hold here too
    image_gc_high_threshold_percent = 70
  }
}

storage_class "local" {
  default = true
}

storage_class "kept" {
  reclaim_policy = "Retain"
}

object "v1" "PersistentVolumeClaim" "data" {
  spec = {
    accessModes      = ["ReadWriteOnce"]
    storageClassName = storage_class.kept.name
    resources        = { requests = { storage = "1Gi" } }
  }
}
