package stream

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/request"
)

// kubeletPaths maps pods' subresources to the kubelet's paths.
var kubeletPaths = map[string]string{
	"log":         "containerLogs",
	"exec":        "exec",
	"attach":      "attach",
	"portforward": "portForward",
}

// kubeletParameters maps the query parameters of exec and attach to the kubelet's.
var kubeletParameters = map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}

// ServeKubelet forwards logs, exec, attach and port-forward to the pod's kubelet. The bytes after an upgrade are
// copied unchanged.
func (s *Streams) ServeKubelet(q *request.Request) error {
	if q.Verb != "get" && (q.Verb != "create" || q.Subresource == "log") {
		return request.MethodNotAllowed(q)
	}
	// Exec, attach and port-forward change a pod, whichever protocol or method opens the stream.
	if q.Subresource != "log" {
		if err := s.server.AuthorizeCreate(q); err != nil {
			return err
		}
	}
	if err := s.server.WaitForCurrent(q.HTTP.Context()); err != nil {
		return err
	}
	e, err := q.LiveEntry()
	if err != nil {
		return err
	}
	obj, err := e.Object()
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return request.PageNotFound()
	}
	if err := s.admitConnect(q); err != nil {
		return err
	}
	path, query, err := kubeletPath(q, pod)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		if q.Subresource == "log" {
			q.Answer.Header().Set("Content-Type", "text/plain")
			q.Answer.WriteHeader(http.StatusOK)
			return nil
		}
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	target, transport, err := s.kubeletEndpoint(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	target.Path, target.RawQuery = path, query.Encode()
	return s.connect(q, target, transport)
}

// connect forwards a request to a kubelet in the protocol that the client chose.
func (s *Streams) connect(q *request.Request, target *url.URL, transport http.RoundTripper) error {
	switch {
	case q.Subresource == "portforward" && wantsTunnel(q.HTTP):
		return s.tunnel(q, target, transport)
	case (q.Subresource == "exec" || q.Subresource == "attach") && wantsChannels(q.HTTP):
		s.translate(q, target, transport)
		return nil
	case q.Subresource == "log" && wsstream.IsWebSocketRequest(q.HTTP):
		return s.streamLog(q, target, transport)
	}
	var change func(*http.Response) error
	if q.Subresource == "log" {
		change = kubeletError
	}
	s.forward(q, target, transport, change)
	return nil
}

// kubeletPath returns the kubelet's path and query for a request to a pod.
func kubeletPath(q *request.Request, pod *corev1.Pod) (string, url.Values, error) {
	path := "/" + kubeletPaths[q.Subresource] + "/" + url.PathEscape(pod.Namespace) + "/" + url.PathEscape(pod.Name)
	query := q.HTTP.URL.Query()
	if q.Subresource != "portforward" {
		container, err := containerOf(pod, query.Get("container"))
		if err != nil {
			return "", nil, err
		}
		path += "/" + url.PathEscape(container)
		query.Del("container")
	}
	if q.Subresource == "exec" || q.Subresource == "attach" {
		query = kubeletQuery(query)
	}
	return path, query, nil
}

func kubeletQuery(query url.Values) url.Values {
	out := url.Values{"command": query["command"]}
	for ours, theirs := range kubeletParameters {
		if request.BoolParameter(query, ours) {
			out.Set(theirs, "1")
		}
	}
	return out
}

// containerOf returns the container of that name. If name is empty, it returns the pod's only container.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names, all []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	all = append(all, names...)
	for _, c := range pod.Spec.InitContainers {
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, c.Name)
	}
	if name == "" {
		if len(names) == 1 {
			return names[0], nil
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf(
			"a container name must be specified for pod %s, choose one of: %v", pod.Name, names))
	}
	for _, current := range all {
		if current == name {
			return name, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
}

// kubeletEndpoint returns the URL of a node's kubelet, and the transport to reach it. The kubelet's certificate must be
// valid for the node's name.
func (s *Streams) kubeletEndpoint(node string) (*url.URL, http.RoundTripper, error) {
	if s.config.KubeletTLS == nil {
		return nil, nil, apierrors.NewServiceUnavailable("this server has no credentials towards kubelets")
	}
	obj, ok := s.config.Objects.Get(schema.GroupResource{Resource: "nodes"}, "", node)
	n, isType := obj.(*corev1.Node)
	if !ok || !isType {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, node)
	}
	port := int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		return nil, nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %s has no kubelet to ask: it reports "+
			"no port (the nodes of a development cluster are only pretended)", node))
	}
	host, err := nodeAddress(n)
	if err != nil {
		return nil, nil, err
	}
	return &url.URL{
		Scheme: "https",
		Host:   net.JoinHostPort(host, strconv.Itoa(port)),
	}, s.kubelets.transportOf(s.config.KubeletTLS, s.config.KubeletRoots, node), nil
}

// nodeAddress returns a node's address. It prefers the address types in the order that kubeadm configures for upstream.
func nodeAddress(n *corev1.Node) (string, error) {
	for _, want := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeInternalDNS,
		corev1.NodeHostName} {
		for _, a := range n.Status.Addresses {
			if a.Type == want && a.Address != "" {
				return a.Address, nil
			}
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("node %s has no address yet", n.Name))
}

// forward passes a request on and copies the response back. An upgraded connection becomes a tunnel. change may modify
// the response first; it may be nil.
func (s *Streams) forward(q *request.Request, target *url.URL, transport http.RoundTripper,
	change func(*http.Response) error) {
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: nil, ModifyResponse: change,
		Rewrite: func(r *httputil.ProxyRequest) {
			*r.Out.URL = *target
			r.Out.Host = ""
			r.SetXForwarded()
			header.RemoveHTTP2Upgrade(r.Out.Header)
			// The request is authorized already. The backend must not receive the client's credentials or identity
			// headers.
			r.Out.Header.Del("Authorization")
			for name := range r.Out.Header {
				if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") {
					r.Out.Header.Del(name)
				}
			}
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if q.HTTP.Context().Err() == nil {
				q.WriteError(s.config.Log, apierrors.NewInternalError(fmt.Errorf("error dialing backend: %w", err)))
			}
		},
	}
	proxy.ServeHTTP(q.Answer, q.HTTP)
}

// kubeletError converts a kubelet's error response to an API error.
func kubeletError(r *http.Response) error {
	if r.StatusCode < 400 {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, 4096))
	if err != nil {
		return err
	}
	_ = r.Body.Close()
	st := apierrors.NewGenericServerResponse(r.StatusCode, "get", schema.GroupResource{Resource: "pods/log"}, "",
		strings.TrimSpace(string(text)), 0, true).ErrStatus
	st.Message = strings.TrimSpace(string(text))
	data := encodeStatus(st)
	r.Body = io.NopCloser(bytes.NewReader(data))
	r.ContentLength = int64(len(data))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Length", strconv.Itoa(len(data)))
	return nil
}

// dialTimeout limits how long connecting may take.
const dialTimeout = 5 * time.Second

func newTransport(config *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, addr)
		},
		TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // upgrades need HTTP/1.1
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
}
