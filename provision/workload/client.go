// Package workload reconciles the declared workloads, objects and manifests, and the objects that the cluster's own
// daemons need, with the live cluster. It uses server-side apply, so that every field has one owner. It prunes objects
// that it once applied and that are no longer declared, and waits until applied objects are healthy. It also drains and
// deletes nodes.
package workload

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/kube/discovery"
	"clusterctl/provision/run/session"
)

// Manager is the field manager of all applied objects.
const Manager = "clusterctl"

// Live is a client of a cluster's API.
type Live struct {
	*connection
	nodeClient
	tokenClient
	rightsClient
	gatherClient

	unchanged unchangedCache // objects that were compared and need no dry run
}

// connection reads objects of any kind. The clients of a cluster share it.
type connection struct {
	rest            *rest.Config
	dynamic         dynamic.Interface
	discoveryClient *discovery.Client
	mapper          meta.ResettableRESTMapper
	manager         string // field manager; "" means Manager
}

type (
	nodeClient   struct{ *connection } // drains, deletes and observes nodes
	tokenClient  struct{ *connection } // manages the tokens with which machines join
	rightsClient struct{ *connection } // manages the rights of daemons
	gatherClient struct{ *connection } // gathers the objects of a support bundle
)

// liveOver returns a client that uses a connection.
func liveOver(c *connection) *Live {
	return &Live{connection: c, nodeClient: nodeClient{c}, tokenClient: tokenClient{c}, rightsClient: rightsClient{c},
		gatherClient: gatherClient{c}}
}

var _ session.Cluster = (*Live)(nil)

// Connect returns a client that connects to the first of the servers (host:port) that answers. It sends nothing yet.
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
		// Requests that hang time out. There are no watches.
		Timeout: 30 * time.Second,
	}
	cfg.WarningHandler = rest.NoWarnings{}
	if err := useServers(cfg, servers); err != nil {
		return nil, fmt.Errorf("prepare to speak with the API: %w", err)
	}
	return newLive(cfg)
}

// newLive returns a client with a configuration.
func newLive(cfg *rest.Config) (*Live, error) {
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
	l := liveOver(&connection{rest: cfg, dynamic: d, discoveryClient: served, mapper: discovery.NewMapper(served)})
	l.unchanged.apiBuild = func() (string, error) {
		v, err := served.ServerVersion()
		if err != nil {
			return "", err
		}
		return v.GitVersion + " " + v.GitCommit, nil
	}
	return l, nil
}

// fieldManager returns the field manager of the objects that this client applies.
func (l *connection) fieldManager() string { return cmp.Or(l.manager, Manager) }

// REST returns a copy of the client configuration, for other clients.
func (l *connection) REST() *rest.Config { return rest.CopyConfig(l.rest) }
