// Package identity lets each controller call the API as a service account in kube-system, so that it can do only what
// its role allows. It creates missing accounts and holds their tokens in memory. The API server defines the accounts'
// roles.
package identity

import (
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/client"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes"
)

// Identities creates clients that act as service accounts.
type Identities struct {
	context  loop.Context
	accounts kubernetes.ServiceAccounts
	rest     *rest.Config
	shared   http.RoundTripper
}

// New returns Identities for the manager's context c, whose user creates the accounts and requests their tokens.
// anonymous is the configuration of the API without credentials. All accounts share one connection, so it must not have
// a client certificate: that would take precedence over the tokens.
func New(c loop.Context, anonymous *rest.Config) (*Identities, error) {
	shared, err := rest.TransportFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("make a transport for service accounts: %w", err)
	}
	cfg := rest.AnonymousClientConfig(anonymous)
	cfg.TLSClientConfig = rest.TLSClientConfig{} // the shared transport contains it
	return &Identities{
		context:  c,
		accounts: c.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem),
		rest:     cfg,
		shared:   shared,
	}, nil
}

// ContextFor returns a context for a controller that acts as the service account.
func (i *Identities) ContextFor(name string) (loop.Context, error) {
	c, cfg := i.context, rest.CopyConfig(i.rest)
	cfg.UserAgent = strings.Join([]string{i.rest.UserAgent, UserName(name)},
		"/") // field managers are named by the text before the first slash
	cfg.Transport = &bearer{
		account: &account{name: name, accounts: i.accounts, now: c.Now, after: c.After,
			requestSlot: make(chan struct{}, 1)},
		transport: i.shared,
	}
	var err error
	c.Client, c.Dynamic, c.Metadata, err = Clients(cfg)
	return c, err
}

// UserName returns the user name of a service account in kube-system.
func UserName(account string) string {
	return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + account
}

// Clients returns the clients of one identity, which share one transport.
func Clients(cfg *rest.Config) (kubernetes.Interface, dynamic.Interface, metadata.Interface, error) {
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a client: %w", err)
	}
	typed, err := kubernetes.NewForConfigAndClient(cfg, transport)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a client: %w", err)
	}
	untyped, err := dynamic.NewForConfigAndClient(cfg, transport)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a client: %w", err)
	}
	meta, err := client.Metadata(cfg, transport)
	if err != nil {
		return nil, nil, nil, err
	}
	return typed, untyped, meta, nil
}
