package kubelet

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/server"
)

// WriteResource writes what /metrics/resource serves. It is for simulated nodes, which have no server.
func (o Options) WriteResource(ctx context.Context, w io.Writer) error {
	return server.WriteResource(ctx, o.Runtime, o.Machine, w)
}

// newServer returns the server of the kubelet's port.
func (k *Kubelet) newServer() *server.Server {
	return &server.Server{Config: server.Config{
		Node: k.name, RuntimeName: k.runtimeName, File: &k.file, RevokedFile: k.cfg.ClientCRLFile, Env: k.env,
		Log: k.env.Log, Client: k.client, Runtime: k.runtime, Machine: k.machine, Logs: k.logs, Pods: podRegistry{k},
		Volumes: k.volumes, ClaimUsage: k.claimUsageByPod, Probes: k.metrics.Probes.Handler(),
	}}
}

// serve serves the kubelet's port and its health port until ctx ends.
func (k *Kubelet) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	k.env.Health.AddLive("syncloop", k.pods.checkProgress)
	k.env.Health.AddReady("node", func() error {
		if k.agent.Node() == nil {
			return errors.New("the node is not registered yet")
		}
		return nil
	})
	certificate, keep, err := k.newServingCertificate()
	if err != nil {
		return err
	}
	if keep != nil {
		g.Go(func() error {
			keep(ctx)
			return nil
		})
	}
	k.metrics.Serving.Set(certificate)
	g.Go(func() error { return k.newServer().Serve(ctx, certificate) })
	return g.Wait()
}

// Pods implements server.Pods.
func (r podRegistry) Pods() (all []*corev1.Pod) {
	r.k.pods.mu.Lock()
	defer r.k.pods.mu.Unlock()
	for _, w := range r.k.pods.workers {
		w.inbox.mu.Lock()
		all = append(all, w.inbox.pod)
		w.inbox.mu.Unlock()
	}
	return all
}

// FindPod implements server.Pods.
func (r podRegistry) FindPod(namespace, name, uid string) (found *corev1.Pod) {
	r.k.pods.mu.Lock()
	defer r.k.pods.mu.Unlock()
	for _, w := range r.k.pods.workers {
		w.inbox.mu.Lock()
		p, isGone := w.inbox.pod, w.inbox.removed
		w.inbox.mu.Unlock()
		if p.Namespace == namespace && p.Name == name && (uid == "" || string(p.UID) == uid || pod.IsStatic(p)) &&
			(found == nil || !isGone) {
			found = p
		}
	}
	return found
}
