package stream

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/request"
)

// ServeProxy forwards a request to a node, a pod or a service.
func (s *Streams) ServeProxy(q *request.Request) error {
	if err := s.server.WaitForCurrent(q.HTTP.Context()); err != nil {
		return err
	}
	if q.ProxyPath == "" && (q.HTTP.Method == http.MethodGet || q.HTTP.Method == http.MethodHead) &&
		q.HTTP.Header.Get("Upgrade") == "" {
		// Relative links need the trailing slash.
		http.Redirect(q.Answer, q.HTTP, q.HTTP.URL.EscapedPath()+"/"+proxiedQuery(q), http.StatusMovedPermanently)
		return nil
	}
	scheme, name, port, err := splitName(q.Name)
	if err != nil {
		return err
	}
	if err := s.authorizeRun(q); err != nil {
		return err
	}
	if err := s.admitConnect(q); err != nil {
		return err
	}
	var target *url.URL
	var transport http.RoundTripper = s.podTransport
	switch q.Served.Resource {
	case "nodes":
		target, transport, err = s.nodeTarget(q, scheme, name, port)
	case "pods":
		target, err = s.podTarget(q, scheme, name, port)
	case "services":
		target, err = s.serviceTarget(q, scheme, name, port)
	default:
		return request.PageNotFound()
	}
	if err != nil {
		return err
	}
	target.Path, target.RawPath, target.RawQuery = q.ProxyPath, escapedProxyPath(q), q.HTTP.URL.RawQuery
	q.HTTP.Header.Set("X-Forwarded-Uri", q.HTTP.URL.EscapedPath())
	acceptsRewritable(q.HTTP.Header)
	s.forward(q, target, transport, responseRewriter(q, target))
	return nil
}

// authorizeRun requires the verb create on nodes/proxy for kubelet paths that run a command in a container. The kubelet
// cannot check this, because it sees only this server's identity, which is allowed everything.
func (s *Streams) authorizeRun(q *request.Request) error {
	if q.Served.Resource != "nodes" {
		return nil
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+q.ProxyPath), "/"), "/")
	switch first {
	case "exec", "attach", "portForward", "run":
		return s.server.AuthorizeCreate(q)
	}
	return nil
}

func proxiedQuery(q *request.Request) string {
	if q.HTTP.URL.RawQuery == "" {
		return ""
	}
	return "?" + q.HTTP.URL.RawQuery
}

// newPodTransport returns the transport to pods. It does not verify certificates, because pods have none from a known
// issuer.
func newPodTransport() *http.Transport {
	return newTransport(
		&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
	) //nolint:gosec // as upstream: a pod's certificate has no known issuer
}

// splitName reads [scheme:]name[:port].
func splitName(text string) (scheme, name, port string, err error) {
	parts := strings.Split(text, ":")
	switch {
	case len(parts) == 1:
		return "http", parts[0], "", nil
	case len(parts) == 2:
		return "http", parts[0], parts[1], nil
	case len(parts) == 3 && (parts[0] == "http" || parts[0] == "https" || parts[0] == ""):
		if parts[0] == "" {
			parts[0] = "http"
		}
		return parts[0], parts[1], parts[2], nil
	}
	return "", "", "", apierrors.NewBadRequest(fmt.Sprintf("invalid proxy request %q", text))
}

func (s *Streams) nodeTarget(q *request.Request, scheme, name, port string) (*url.URL, http.RoundTripper, error) {
	target, transport, err := s.kubeletEndpoint(name)
	if err != nil {
		return nil, nil, err
	}
	if port != "" && port != target.Port() {
		// A node's addresses are self-reported, so they must not lead to this machine.
		addresses, err := net.DefaultResolver.LookupNetIP(q.HTTP.Context(), "ip", target.Hostname())
		if err != nil {
			return nil, nil, apierrors.NewServiceUnavailable(fmt.Sprintf("find the address of node %s: %v", name, err))
		}
		if slices.ContainsFunc(addresses, isLocalAddress) {
			return nil, nil, apierrors.NewBadRequest("address not allowed")
		}
		if len(addresses) == 0 {
			return nil, nil, apierrors.NewServiceUnavailable(fmt.Sprintf("find the address of node %s: it has none",
				name))
		}
		// Connect to the checked address. The name may resolve to another one later.
		return &url.URL{Scheme: scheme, Host: net.JoinHostPort(addresses[0].Unmap().String(), port)}, s.podTransport,
			nil
	}
	return target, transport, nil
}

func (s *Streams) podTarget(q *request.Request, scheme, name, port string) (*url.URL, error) {
	obj, ok := s.config.Objects.Get(schema.GroupResource{Resource: "pods"}, q.Namespace, name)
	if err := q.Cache.ReadError(q.Namespace + "/" + name); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	pod, isType := obj.(*corev1.Pod)
	if !ok || !isType {
		return nil, apierrors.NewNotFound(q.GroupResource(), name)
	}
	if port == "" {
		for _, c := range pod.Spec.Containers {
			if len(c.Ports) > 0 {
				port = strconv.Itoa(int(c.Ports[0].ContainerPort))
				break
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name != "" && p.Name == port {
				port = strconv.Itoa(int(p.ContainerPort))
			}
		}
	}
	return podURL(scheme, pod.Status.PodIP, port)
}

// isLocalAddress reports whether an address is local to this machine or its link.
func isLocalAddress(addr netip.Addr) bool {
	addr = addr.Unmap()
	return addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsLinkLocalMulticast() ||
		addr.IsInterfaceLocalMulticast() ||
		addr.IsUnspecified()
}

// podURL returns the URL of a pod. It refuses addresses that are local to this machine or its link.
func podURL(scheme, ip, port string) (*url.URL, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable("the pod has no address yet")
	}
	if isLocalAddress(addr) {
		return nil, apierrors.NewBadRequest("address not allowed")
	}
	if port == "" {
		port = "80"
		if scheme == "https" {
			port = "443"
		}
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(ip, port)}, nil
}

// serviceTarget returns the URL of one of a service's ready endpoints.
func (s *Streams) serviceTarget(q *request.Request, scheme, name, port string) (*url.URL, error) {
	obj, ok := s.config.Objects.Get(schema.GroupResource{Resource: "services"}, q.Namespace, name)
	if err := q.Cache.ReadError(q.Namespace + "/" + name); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	svc, isType := obj.(*corev1.Service)
	if !ok || !isType {
		return nil, apierrors.NewNotFound(q.GroupResource(), name)
	}
	portName := port
	found := port == "" && len(svc.Spec.Ports) == 1
	if found {
		portName = svc.Spec.Ports[0].Name
	}
	for _, p := range svc.Spec.Ports {
		if port != "" && (p.Name == port || strconv.Itoa(int(p.Port)) == port) {
			portName, found = p.Name, true
		}
	}
	if !found {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", port, name))
	}
	var targets []*url.URL
	for _, obj := range s.config.Objects.List(schema.GroupResource{Group: "discovery.k8s.io",
		Resource: "endpointslices"},
		q.Namespace) {
		slice, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || slice.Labels[discoveryv1.LabelServiceName] != name {
			continue
		}
		targets = append(targets, readyTargets(slice, scheme, portName)...)
	}
	if len(targets) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return targets[rand.IntN(len(targets))], nil
}

func readyTargets(slice *discoveryv1.EndpointSlice, scheme, portName string) []*url.URL {
	var out []*url.URL
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name != nil && *p.Name != portName || p.Name == nil && portName != "" {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			if u, err := podURL(scheme, e.Addresses[0], strconv.Itoa(int(*p.Port))); err == nil {
				out = append(out, u)
			}
		}
	}
	return out
}
