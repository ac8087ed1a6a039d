// Package identity lets each controller call the API as a service account of kube-system, so that it can do what its
// role allows and no more. The accounts are made where they are missing, and their tokens are held in memory. Which
// account has which role is the API server's to say.
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

// Identities makes the clients of controllers.
type Identities struct {
	context  loop.Context
	accounts kubernetes.ServiceAccounts
	rest     *rest.Config
	shared   http.RoundTripper
}

// New takes the context of the manager, whose user makes the accounts and asks for their tokens, and how the API is
// reached without credentials: all accounts share the connection below that, on which a certificate would count instead
// of their tokens.
func New(c loop.Context, anonymous *rest.Config) (*Identities, error) {
	shared, err := rest.TransportFor(anonymous)
	if err != nil {
		return nil, fmt.Errorf("make a transport for service accounts: %w", err)
	}
	cfg := rest.AnonymousClientConfig(anonymous)
	cfg.TLSClientConfig = rest.TLSClientConfig{} // the transport has it
	return &Identities{
		context:  c,
		accounts: c.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem),
		rest:     cfg,
		shared:   shared,
	}, nil
}

// As returns the context of a controller that is the service account of that name.
func (i *Identities) As(name string) (loop.Context, error) {
	c, cfg := i.context, rest.CopyConfig(i.rest)
	cfg.UserAgent = strings.Join(
		[]string{i.rest.UserAgent, UserName(name)},
		"/",
	) // field managers are named by what is before the first slash
	cfg.Transport = &bearer{
		account: &account{name: name, accounts: i.accounts, now: c.Now, after: c.After, turn: make(chan struct{}, 1)},
		to:      i.shared,
	}
	var err error
	c.Client, c.Dynamic, c.Metadata, err = Clients(cfg)
	return c, err
}

// UserName is the user that an account of kube-system is to the API server.
func UserName(account string) string {
	return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + account
}

// Clients returns all clients of one identity, over one transport.
func Clients(cfg *rest.Config) (kubernetes.Interface, dynamic.Interface, metadata.Interface, error) {
	over, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a client: %w", err)
	}
	typed, err := kubernetes.NewForConfigAndClient(cfg, over)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a client: %w", err)
	}
	untyped, err := dynamic.NewForConfigAndClient(cfg, over)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make a client: %w", err)
	}
	meta, err := client.Metadata(cfg, over)
	if err != nil {
		return nil, nil, nil, err
	}
	return typed, untyped, meta, nil
}
