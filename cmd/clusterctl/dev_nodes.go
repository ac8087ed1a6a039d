package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client"
	"clusterctl/daemons/client/events"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// hollowPods is the network of pod addresses, with room for 8,192 nodes.
var hollowPods = netip.MustParsePrefix("10.128.0.0/11")

// hollowNodes are the simulated nodes, by name. It does not change after its creation.
type hollowNodes struct {
	options map[string]kubelet.Options
	watches *kubelet.Watches
	client  kubernetes.Interface // shared by all nodes
}

// nodesPerRecorder is how many nodes share an event recorder. A recorder's bounded queue holds the events of some
// dozens of nodes that get a pod at the same time.
const nodesPerRecorder = 50

// hollowNodes creates the nodes without starting them. They share watches and one connection to the API, on which each
// impersonates its own user.
func (d *devCluster) hollowNodes() (hollowNodes, error) {
	api, err := client.Config(client.Options{Kubeconfig: d.files.admin, UserAgent: "kubelet"})
	if err != nil {
		return hollowNodes{}, err
	}
	all, err := kubernetes.NewForConfig(api)
	if err != nil {
		return hollowNodes{}, fmt.Errorf("make a client for all nodes: %w", err)
	}
	h := hollowNodes{options: map[string]kubelet.Options{}, client: all}
	if h.watches, err = kubelet.ShareWatches(all); err != nil {
		return hollowNodes{}, err
	}
	pods := hollowPods.Addr()
	for i := range d.nodes {
		name := "node-" + strconv.Itoa(i+1)
		options := kubelet.Hollow(name, 8, 32<<30, netip.PrefixFrom(pods, 24), filepath.Join(d.root(name), "logs"))
		options.API = rest.CopyConfig(api)
		options.API.Impersonate = rest.ImpersonationConfig{
			UserName: "system:node:" + name,
			Groups:   []string{"system:nodes"},
		}
		options.Watches, options.NoLease = h.watches, true
		h.options[name] = options
		for range 256 {
			pods = pods.Next()
		}
	}
	return h, nil
}

// root returns the directory of a node.
func (d *devCluster) root(node string) string { return filepath.Join(d.data, "nodes", node) }

// start starts the nodes and their shared watches.
func (h hollowNodes) start(ctx context.Context, g *errgroup.Group, d *devCluster) {
	g.Go(func() error { return h.watches.Run(ctx) })
	var broadcaster record.EventBroadcaster
	started := 0
	for name, options := range h.options {
		if started%nodesPerRecorder == 0 {
			own := events.NewBroadcaster(ctx, h.client)
			g.Go(func() error { <-ctx.Done(); own.Shutdown(); return nil })
			broadcaster = own
		}
		started++
		options.Events = broadcaster
		g.Go(func() error {
			cfg, file := config.DefaultKubelet(), config.DefaultKubeletFile()
			file.Port = 0 // the node serves nothing, and reports that in its status
			cfg.HostnameOverride, cfg.RootDir, cfg.NodeIP = name, d.root(name), []string{"127.0.0.1"}
			return kubelet.RunWith(ctx, cfg, file, d.nodeEnv(name), options)
		})
	}
}

// nodeEnv returns the environment of a node. Its metrics are not read, and the metrics of the process are not its own.
func (d *devCluster) nodeEnv(name string) run.Env {
	return run.Env{
		Log:       d.log.With("daemon", "kubelet", "node", name),
		Metrics:   prometheus.NewRegistry(),
		Health:    &run.Health{},
		IdleTasks: &run.IdleTasks{},
		About:     &run.About{Started: time.Now()},
	}
}

// isHollow reports whether a node is simulated by this process.
func (h hollowNodes) isHollow(node string) bool {
	_, ok := h.options[node]
	return ok
}

// Read implements metrics.Source. The nodes serve nothing, so it calls them directly.
func (h hollowNodes) Read(ctx context.Context, node *corev1.Node) (io.ReadCloser, error) {
	options, ok := h.options[node.Name]
	if !ok {
		return nil, fmt.Errorf("node %s is none of those that are pretended", node.Name)
	}
	var text bytes.Buffer
	if err := options.WriteResource(ctx, &text); err != nil {
		return nil, err
	}
	return io.NopCloser(&text), nil
}

// Release implements metrics.Source.
func (hollowNodes) Release(string) {}
