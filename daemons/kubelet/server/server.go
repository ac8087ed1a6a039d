// Package server serves the kubelet's port: the logs, streams, metrics and summary of the node's pods.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/logs"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/usage"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// callTimeout limits one request to the API.
const callTimeout = 15 * time.Second

// Pods looks up the pods of the node.
type Pods interface {
	// Pods returns all pods.
	Pods() []*corev1.Pod
	// FindPod returns a pod, or nil. An empty uid means any pod of that name.
	FindPod(namespace, name, uid string) *corev1.Pod
}

// Volumes changes the directories of volumes that were provisioned on this node.
type Volumes interface {
	RemoveProvisioned(name string, used bool, machine string) error
	GrowProvisioned(name string, bytes int64) error
}

// Config is what a Server needs.
type Config struct {
	Node        string // name of the node
	RuntimeName string // name of the runtime, as in containerd://ID
	File        *config.KubeletFile
	RevokedFile string // file of revoked client certificates; empty means none
	Env         run.Env
	Log         *slog.Logger
	Client      kubernetes.Interface
	Runtime     cri.Service
	Machine     Machine
	Logs        logs.Dir
	Pods        Pods
	Volumes     Volumes
	// ClaimUsage returns the usage of the volumes of claims by pod UID.
	ClaimUsage func() map[types.UID][]usage.Claim
	// Probes serves the metrics of probes.
	Probes http.Handler
}

// Machine measures the machine.
type Machine interface {
	CPUs() int
	CPU() (uint64, error)
	Memory() (available, capacity int64, err error)
	Disk() (machine.Disk, error)
}

// Server is the kubelet's HTTPS server.
type Server struct{ Config }

// Serve serves the kubelet's port and its health port with a certificate until ctx ends.
func (s *Server) Serve(ctx context.Context, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	if s.File.HealthzPort > 0 {
		ln, err := net.Listen("tcp", net.JoinHostPort(s.File.HealthzBindAddress, strconv.Itoa(s.File.HealthzPort)))
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, ln, s.Env.Handler(), nil, time.Second, s.Log) })
	}
	gate, err := s.newAuthFilter()
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(s.File.Address, strconv.Itoa(s.File.Port)))
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	tlsConfig := &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, GetCertificate: certificate,
		// Streams are tunnelled as raw connections, which HTTP/2 does not support.
		NextProtos: []string{"http/1.1"},
	}
	g.Go(func() error { return run.Serve(ctx, ln, gate.guard(s.Routes()), tlsConfig, 2*time.Second, s.Log) })
	return g.Wait()
}

// Routes returns the kubelet's handlers, without authentication. All paths but the last are upstream's.
func (s *Server) Routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.Env.Handler())
	mux.Handle("GET /healthz", s.Env.Handler())
	mux.HandleFunc("GET /healthz/{check}", s.Env.Handler().ServeHTTP)
	pages := s.Env.Pages(false)
	for _, path := range []string{"/statusz", "/flagz", "/configz"} {
		mux.Handle("GET "+path, pages)
	}
	mux.HandleFunc("GET /pods", s.servePods)
	mux.HandleFunc("GET /pods/", s.servePods)
	mux.HandleFunc("GET /stats/summary", s.serveSummary)
	mux.HandleFunc("POST /stats/summary", s.serveSummary)
	mux.HandleFunc("GET /metrics/resource", s.serveResourceMetrics)
	mux.Handle("GET /metrics/probes", s.Probes)
	mux.Handle("GET /metrics/cadvisor", s.cadvisor())
	mux.Handle("GET /metrics/slis", s.Env.Handler())
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.serveLogs)
	for _, method := range []string{"GET", "POST"} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", s.serveExec)
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{uid}/{container}", s.serveExec)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{container}", s.serveAttach)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{uid}/{container}", s.serveAttach)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}", s.servePortForward)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}/{uid}", s.servePortForward)
	}
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", s.serveRun)
	mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.HandlerFunc(s.serveFiles)))
	mux.HandleFunc("DELETE /"+directory.Resource+"/{name}", s.serveRemoveVolume)
	mux.HandleFunc("PUT /"+directory.Resource+"/{name}", s.serveGrowVolume)
	return mux
}

// serveFiles serves the directory of the machine's logs. It does not follow links that lead out of the directory.
func (s *Server) serveFiles(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(filepath.Dir(string(s.Logs)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer root.Close()
	if info, err := root.Stat(filepath.Clean(cmp.Or(r.URL.Path, "."))); err == nil && !info.Mode().IsRegular() &&
		!info.IsDir() {
		http.Error(w, "not a plain file", http.StatusForbidden)
		return
	}
	http.FileServerFS(root.FS()).ServeHTTP(w, r)
}

func (s *Server) servePods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{}
	list.Kind, list.APIVersion = "PodList", "v1"
	for _, p := range s.Pods.Pods() {
		list.Items = append(list.Items, *p)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// findPod returns the pod that a request names.
func (s *Server) findPod(r *http.Request) (*corev1.Pod, error) {
	namespace, name, uid := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid")
	found := s.Pods.FindPod(namespace, name, uid)
	if found == nil {
		return nil, fmt.Errorf("pod %q not found in namespace %q on node %s", name, namespace, s.Node)
	}
	return found, nil
}

func (s *Server) serveRun(w http.ResponseWriter, r *http.Request) {
	_, c, err := s.findContainer(r, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	stdout, stderr, _, err := s.Runtime.ExecSync(ctx, c.ID, r.URL.Query()["cmd"], time.Minute)
	if err != nil {
		http.Error(w, cri.Message(err), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(append(stdout, stderr...))
}
