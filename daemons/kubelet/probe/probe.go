// Package probe runs the probes of containers. A Worker follows upstream's timing and thresholds. Package
// daemons/kubelet/pod decides what follows from a result.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
)

// Exec runs a command in the probed container.
type Exec func(ctx context.Context, command []string, timeout time.Duration) (output string, code int32, err error)

// Target is the probed container.
type Target struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	IP        string
	Exec      Exec
	// Simulated means that the container is simulated and nothing listens in it. Probes of its own address succeed
	// without a connection, because another network of this machine may use that address.
	Simulated bool
}

// isSimulated reports whether a host is the address of a simulated pod. An empty host means the pod's own address.
func (t Target) isSimulated(host string) bool { return t.Simulated && host == "" }

const maxOutput = 10 << 10

// Run runs a probe once. It returns nil on success, otherwise the reason of the failure.
func Run(ctx context.Context, p *corev1.Probe, t Target) error {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case p.Exec != nil:
		output, code, err := t.Exec(ctx, p.Exec.Command, timeout)
		if err != nil {
			return fmt.Errorf("command timed out or could not be run: %w", err)
		}
		if code != 0 {
			return errors.New(output)
		}
		return nil
	case p.HTTPGet != nil:
		return httpGet(ctx, p.HTTPGet, t)
	case p.TCPSocket != nil:
		host := p.TCPSocket.Host
		if host == "" {
			host = t.IP
		}
		port, err := ResolvePort(p.TCPSocket.Port.String(), t.Container)
		if err != nil || t.isSimulated(p.TCPSocket.Host) {
			return err
		}
		conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		return conn.Close()
	case p.GRPC != nil && t.isSimulated(""):
		return nil
	case p.GRPC != nil:
		return grpcCheck(ctx, p.GRPC, t.IP)
	}
	return errors.New("missing probe handler")
}

// ResolvePort returns a port by number or by its name in the container.
func ResolvePort(port string, c *corev1.Container) (int, error) {
	if n, err := strconv.Atoi(port); err == nil && n > 0 && n < 65536 {
		return n, nil
	}
	for _, p := range c.Ports {
		if p.Name == port {
			return int(p.ContainerPort), nil
		}
	}
	return 0, fmt.Errorf("couldn't find port: %s in container %s", port, c.Name)
}

// httpClient keeps no connections alive, because a probe checks whether a new one is accepted.
var httpClient = &http.Client{
	Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, Proxy: nil,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the API defines that probes skip verification
	},
	CheckRedirect: sameHost,
}

// http2Client is client for servers that only speak HTTP/2, with TLS or with prior knowledge.
var http2Client = &http.Client{
	Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, Proxy: nil, Protocols: http2Protocols(),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	},
	CheckRedirect: sameHost,
}

func http2Protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

func sameHost(r *http.Request, via []*http.Request) error {
	if len(via) > 0 && r.URL.Hostname() != via[0].URL.Hostname() || len(via) >= 10 {
		return http.ErrUseLastResponse
	}
	return nil
}

// clientFor returns the client for the protocol of a probe or handler.
func clientFor(get *corev1.HTTPGetAction) *http.Client {
	if get.Protocol != nil && *get.Protocol == corev1.HTTPProtocolHTTP2 {
		return http2Client
	}
	return httpClient
}

// Request returns the request of an HTTP probe or handler.
func Request(ctx context.Context, get *corev1.HTTPGetAction, t Target, agent string) (*http.Request, error) {
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	host := get.Host
	if host == "" {
		host = t.IP
	}
	port, err := ResolvePort(get.Port.String(), t.Container)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path}
	}
	u.Scheme, u.Host = scheme, net.JoinHostPort(host, strconv.Itoa(port))
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", agent)
	r.Header.Set("Accept", "*/*")
	for _, h := range get.HTTPHeaders {
		if strings.EqualFold(h.Name, "host") {
			r.Host = h.Value
			continue
		}
		r.Header.Add(h.Name, h.Value)
	}
	return r, nil
}

func httpGet(ctx context.Context, get *corev1.HTTPGetAction, t Target) error {
	r, err := Request(ctx, get, t, "kube-probe/1.37")
	if err != nil || t.isSimulated(get.Host) {
		return err
	}
	answer, err := clientFor(get).Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, maxOutput)); err != nil {
		return err
	}
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", answer.StatusCode)
	}
	return nil
}

// Get sends the request of a lifecycle handler.
func Get(ctx context.Context, get *corev1.HTTPGetAction, t Target) error {
	r, err := Request(ctx, get, t, "kube-lifecycle/1.37")
	if err != nil || t.isSimulated(get.Host) {
		return err
	}
	answer, err := clientFor(get).Do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func grpcCheck(ctx context.Context, g *corev1.GRPCAction, ip string) error {
	conn, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(ip, strconv.Itoa(int(g.Port))),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/1.37"))
	if err != nil {
		return err
	}
	defer conn.Close()
	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		return err
	}
	if answer.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", answer.Status)
	}
	return nil
}
