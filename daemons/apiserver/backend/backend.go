// Package backend connects the API server to programs that serve a part of the API for it: webhooks and aggregated API
// servers, behind a service of the cluster or at a URL. Callers define the requests.
package backend

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Target is a program to connect to. It has a service, or its own host and port.
type Target struct {
	Namespace, Service string
	Port               int32
	Host               string // host:port, if there is no service

	CABundle      []byte // PEM of the trusted authorities; empty trusts the system's
	AdditionalCAs []byte // PEM; trusted in addition to the system's authorities if CABundle is empty
	Insecure      bool   // accept any certificate
	// Certificate returns the API server's client certificate; nil presents none.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// Name returns the host:port for URLs. The certificate must be for the host.
func (t Target) Name() string {
	if t.Service == "" {
		return t.Host
	}
	return net.JoinHostPort(t.Service+"."+t.Namespace+".svc", strconv.Itoa(int(t.Port)))
}

// Connector connects to targets. Connections are kept and shared.
type Connector struct {
	// WrapTransport wraps the transport of requests that this server makes itself, to count them; nil counts none.
	// Proxied requests are not counted.
	WrapTransport func(http.RoundTripper) http.RoundTripper

	objects api.Objects

	mu         sync.Mutex
	transports map[connectionKey]*http.Transport
}

// New returns a Connector that finds services and endpoints in objects.
func New(objects api.Objects) *Connector {
	return &Connector{objects: objects, transports: map[connectionKey]*http.Transport{}}
}

// connectionKey holds what connections must have in common to be shared.
type connectionKey struct {
	server                               string
	trustDigest                          [sha256.Size]byte
	insecure, hasCertificate, canUpgrade bool
}

const (
	maxTransports = 256
	dialTimeout   = 5 * time.Second
	// maxAttempts is how many endpoints are tried if connecting fails.
	maxAttempts = 3
)

// Transport returns a transport to a target. With upgrades, its connections use HTTP/1.1, which can be upgraded to
// another protocol.
func (r *Connector) Transport(t Target, upgrades bool) (http.RoundTripper, error) {
	host, _, err := net.SplitHostPort(t.Name())
	if err != nil {
		return nil, fmt.Errorf("read the address %q: %w", t.Name(), err)
	}
	id := connectionKey{host, sha256.Sum256(append(append(slices.Clone(t.CABundle), 0), t.AdditionalCAs...)),
		t.Insecure,
		t.Certificate != nil, upgrades}
	r.mu.Lock()
	defer r.mu.Unlock()
	transport := r.transports[id]
	if transport == nil {
		if transport, err = r.newTransport(t, host, upgrades); err != nil {
			return nil, err
		}
		if len(r.transports) >= maxTransports {
			for old, unused := range r.transports {
				unused.CloseIdleConnections()
				delete(r.transports, old)
				break
			}
		}
		r.transports[id] = transport
	}
	if t.Service == "" {
		return transport, nil
	}
	return &balancedTransport{r, t, transport}, nil
}

// OwnTransport returns the transport for the server's own requests to a target.
func (r *Connector) OwnTransport(t Target) (http.RoundTripper, error) {
	transport, err := r.Transport(t, false)
	if err == nil && r.WrapTransport != nil {
		transport = r.WrapTransport(transport)
	}
	return transport, err
}

func (r *Connector) newTransport(t Target, host string, upgrades bool) (*http.Transport, error) {
	config := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           host,
		InsecureSkipVerify:   t.Insecure,
		GetClientCertificate: t.Certificate,
	} //nolint:gosec // as the APIService says
	if len(t.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.CABundle) {
			return nil, errors.New("the CA bundle holds no certificate")
		}
	} else if len(t.AdditionalCAs) > 0 {
		var err error
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool() // the system has no trusted authorities
		}
		config.RootCAs.AppendCertsFromPEM(t.AdditionalCAs)
	}
	made := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 25, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
		ForceAttemptHTTP2: !upgrades,
		// A deleted pod does not always close its connections.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
	if upgrades {
		made.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return made, nil
}

// balancedTransport sends each request to one of a service's endpoints. If it cannot connect, it tries another
// endpoint, because the first has not seen the request.
type balancedTransport struct {
	connector *Connector
	target    Target
	transport *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (b *balancedTransport) RoundTrip(q *http.Request) (*http.Response, error) {
	hosts, err := b.connector.Endpoints(b.target)
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	for i, host := range hosts {
		one := q.Clone(q.Context())
		one.URL.Host = host
		if one.Host == "" {
			one.Host = q.URL.Host
		}
		if q.GetBody != nil {
			if one.Body, err = q.GetBody(); err != nil {
				return nil, err
			}
		}
		answer, err := b.transport.RoundTrip(one)
		var op *net.OpError
		if err == nil || i+1 >= min(maxAttempts, len(hosts)) || !errors.As(err, &op) || op.Op != "dial" ||
			q.Body != nil && q.GetBody == nil ||
			q.Context().Err() != nil {
			return answer, err
		}
	}
	return nil, fmt.Errorf("no endpoints available for service %q", b.target.Service)
}

// Endpoints returns the host:port of each of a service's ready endpoints.
func (r *Connector) Endpoints(t Target) ([]string, error) {
	obj, ok := r.objects.Get(schema.GroupResource{Resource: "services"}, t.Namespace, t.Service)
	svc, isType := obj.(*corev1.Service)
	if !ok || !isType {
		return nil, fmt.Errorf("service %q not found", t.Service)
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return []string{net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(t.Port)))}, nil
	}
	name, found := "", false
	for _, p := range svc.Spec.Ports {
		if p.Port == t.Port {
			name, found = p.Name, true
		}
	}
	if !found {
		return nil, fmt.Errorf("service %q has no port %d", t.Service, t.Port)
	}
	var hosts []string
	for _, obj := range r.objects.List(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"},
		t.Namespace) {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok &&
			slice.Labels[discoveryv1.LabelServiceName] == t.Service {
			hosts = append(hosts, readyAddresses(slice, name)...)
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("no endpoints available for service %q", t.Service)
	}
	return hosts, nil
}

func readyAddresses(slice *discoveryv1.EndpointSlice, port string) []string {
	var hosts []string
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name != nil && *p.Name != port || p.Name == nil && port != "" {
			continue
		}
		for _, e := range slice.Endpoints {
			if (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 {
				hosts = append(hosts, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return hosts
}
