package floating

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/client"
	"clusterctl/kube/kubernetes"
)

// API is a client for leases, which forgets connections on which nothing answers. Nothing else goes over them: one that
// has a watch is not idle, and would not be forgotten.
type API struct {
	*kubernetes.Clientset
	http *http.Client
}

// Connect makes a client.
func Connect(o client.Options) (API, error) {
	cfg, err := client.Config(o)
	if err != nil {
		return API{}, err
	}
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return API{}, fmt.Errorf("set up the API client: %w", err)
	}
	set, err := kubernetes.NewForConfigAndClient(cfg, transport)
	if err != nil {
		return API{}, fmt.Errorf("set up the API client: %w", err)
	}
	return API{set, transport}, nil
}

// Failed drops the connections after an error: the next request finds a server that lives.
func (a API) Failed(err error) error {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		utilnet.CloseIdleConnectionsFor(a.http.Transport)
	}
	return err
}
