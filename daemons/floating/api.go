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

// API is a client for leases that can drop idle connections. Watches must not share its connections, because a
// connection with a watch is not idle and would not be dropped.
type API struct {
	*kubernetes.Clientset
	httpClient *http.Client
}

// Connect returns a client.
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

// CloseIdleOnError returns err. Unless it is a normal response, it first drops the idle connections, so that the next
// request connects to an API server that works.
func (a API) CloseIdleOnError(err error) error {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		utilnet.CloseIdleConnectionsFor(a.httpClient.Transport)
	}
	return err
}
