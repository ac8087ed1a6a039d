// Package workload reconciles what is declared to run with the live cluster: workloads,
// objects and manifests, and the few objects that the cluster's own daemons need.
// It speaks server-side apply, so that every field has one owner; it prunes what it once
// applied and is no longer declared, and waits until what it applied works. Machines are
// not its business, but for draining and forgetting a node.
package workload

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/kube/discovery"
	"clusterctl/provision/run"
)

// Manager is the field manager of everything that is applied.
const Manager = "clusterctl"

// Live is a cluster's API.
type Live struct {
	rest    *rest.Config
	dynamic dynamic.Interface
	served  *discovery.Client
	mapper  meta.ResettableRESTMapper

	settled settled // what was compared, and is as declared
}

var _ run.Cluster = (*Live)(nil)

// Connect prepares to speak with the first of the servers (host:port) that answers.
// Nothing is sent yet.
func Connect(servers []string, ca []byte, pair certs.Pair) (*Live, error) {
	if len(servers) == 0 {
		return nil, errors.New("no machine has the control-plane role")
	}
	cfg := &rest.Config{
		Host: "https://" + servers[0],
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: "kubernetes",
			CAData:     ca,
			CertData:   pair.Cert,
			KeyData:    pair.Key,
		},
		QPS: -1, UserAgent: "clusterctl",
		// A request that hangs is given up; watches are not used here.
		Timeout: 30 * time.Second,
	}
	cfg.WarningHandler = rest.NoWarnings{}
	if err := reach(cfg, servers); err != nil {
		return nil, fmt.Errorf("prepare to speak with the API: %w", err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare to speak with the API: %w", err)
	}
	d, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("prepare to speak with the API: %w", err)
	}
	served, err := discovery.New(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("prepare to speak with the API: %w", err)
	}
	l := &Live{rest: cfg, dynamic: d, served: served, mapper: discovery.NewMapper(served)}
	l.settled.version = func() (string, error) {
		v, err := served.ServerVersion()
		if err != nil {
			return "", err
		}
		return v.GitVersion + " " + v.GitCommit, nil
	}
	return l, nil
}

// REST returns how the API is reached, for other clients.
func (l *Live) REST() *rest.Config { return rest.CopyConfig(l.rest) }
