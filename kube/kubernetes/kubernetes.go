// Package kubernetes provides typed clients for the kinds that the daemons and the provisioner use. The methods are
// those of client-go's package kubernetes, which this package replaces because it links all versions of all kinds and
// makes the program a seventh larger.
package kubernetes

import (
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"clusterctl/kube/discovery"
	"clusterctl/kube/scheme"
)

// Interface provides the clients of all groups. Package fake implements it with objects in memory.
type Interface interface {
	Discovery() discovery.Interface
	AdmissionregistrationV1() AdmissionregistrationV1
	AppsV1() AppsV1
	AuthenticationV1() AuthenticationV1
	AuthorizationV1() AuthorizationV1
	AutoscalingV2() AutoscalingV2
	BatchV1() BatchV1
	CertificatesV1() CertificatesV1
	CoordinationV1() CoordinationV1
	CoreV1() CoreV1
	DiscoveryV1() DiscoveryV1
	NetworkingV1() NetworkingV1
	NodeV1() NodeV1
	PolicyV1() PolicyV1
	RbacV1() RbacV1
	ResourceV1() ResourceV1
	StorageV1() StorageV1
	StoragemigrationV1() StoragemigrationV1
}

// Clientset implements Interface with requests to an API server. It is safe for concurrent use.
type Clientset struct {
	config    *rest.Config
	http      *http.Client
	discovery *discovery.Client

	mu     sync.Mutex
	groups map[schema.GroupVersion]rest.Interface // created when they are first used
}

var _ Interface = (*Clientset)(nil)

// NewForConfig returns clients with their own HTTP client.
func NewForConfig(cfg *rest.Config) (*Clientset, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return NewForConfigAndClient(cfg, client)
}

// NewForConfigOrDie is like NewForConfig, but panics on an error.
func NewForConfigOrDie(cfg *rest.Config) *Clientset {
	c, err := NewForConfig(cfg)
	if err != nil {
		panic(err)
	}
	return c
}

// NewForConfigAndClient returns clients that share an HTTP client with others.
func NewForConfigAndClient(cfg *rest.Config, client *http.Client) (*Clientset, error) {
	c := &Clientset{config: rest.CopyConfig(cfg), http: client, groups: map[schema.GroupVersion]rest.Interface{}}
	if c.config.UserAgent == "" {
		c.config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	var err error
	if c.discovery, err = discovery.New(c.config, client); err != nil {
		return nil, err
	}
	core := schema.GroupVersion{Version: "v1"}
	if c.groups[core], err = c.newGroup(core); err != nil {
		return nil, err
	}
	return c, nil
}

// newGroup returns a new client of a group version.
func (c *Clientset) newGroup(gv schema.GroupVersion) (rest.Interface, error) {
	cfg := rest.CopyConfig(c.config)
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme.Scheme(), scheme.Codecs()).WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(cfg, c.http)
	if err != nil {
		return nil, fmt.Errorf("create the client of %s: %w", gv, err)
	}
	return client, nil
}

// group returns the client of a group version.
func (c *Clientset) group(group, version string) rest.Interface {
	c.mu.Lock()
	defer c.mu.Unlock()
	gv := schema.GroupVersion{Group: group, Version: version}
	if client := c.groups[gv]; client != nil {
		return client
	}
	client, err := c.newGroup(gv)
	if err != nil {
		panic(err) // the same configuration was valid for the core group
	}
	c.groups[gv] = client
	return client
}

// Discovery implements Interface.
func (c *Clientset) Discovery() discovery.Interface { return c.discovery }
