package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/logs"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/run"
)

// lockTimeout is how long the kubelet's list of pods may stay locked before the kubelet counts as hanging.
const lockTimeout = 5 * time.Second

// lockWatch detects a lock that is held for too long. Concurrent callers share one goroutine that waits for the lock.
type lockWatch struct {
	mu      sync.Mutex
	waiting chan struct{} // closed when the lock was acquired; nil when no goroutine waits
}

// canLockWithin reports whether the lock can be acquired within d.
func (w *lockWatch) canLockWithin(lock sync.Locker, d time.Duration) bool {
	w.mu.Lock()
	had := w.waiting
	if had == nil {
		had = make(chan struct{})
		w.waiting = had
		go func() {
			lock.Lock()
			//lint:ignore SA2001 Acquiring the lock is the whole check.
			lock.Unlock()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.waiting = nil
			close(had)
		}()
	}
	w.mu.Unlock()
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-had:
		return true
	case <-late.C:
		return false
	}
}

// checkProgress returns an error if the kubelet hangs. It checks the lock on the list of pods, which all work on pods
// needs.
func (k *Kubelet) checkProgress() error {
	if !k.podsLock.canLockWithin(&k.mu, lockTimeout) {
		return fmt.Errorf("the list of pods has been locked for %s", lockTimeout)
	}
	return nil
}

// serve serves the kubelet's port and its health port until ctx ends.
func (k *Kubelet) serve(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	k.env.Health.AddLive("syncloop", k.checkProgress)
	k.env.Health.AddReady("node", func() error {
		if k.agent.Node() == nil {
			return errors.New("the node is not registered yet")
		}
		return nil
	})
	if k.file.HealthzPort > 0 {
		ln, err := net.Listen("tcp", net.JoinHostPort(k.file.HealthzBindAddress, strconv.Itoa(k.file.HealthzPort)))
		if err != nil {
			return fmt.Errorf("listen for health checks: %w", err)
		}
		g.Go(func() error { return run.Serve(ctx, ln, k.env.Handler(), nil, time.Second, k.env.Log) })
	}
	gate, err := k.newAuthFilter()
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(k.file.Address, strconv.Itoa(k.file.Port)))
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	certificate, keep, err := k.newServing()
	if err != nil {
		return err
	}
	if keep != nil {
		g.Go(func() error {
			keep(ctx)
			return nil
		})
	}
	k.metrics.Serving.Set(certificate)
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert, GetCertificate: certificate,
		// Streams are tunnelled as raw connections, which HTTP/2 does not support.
		NextProtos: []string{"http/1.1"},
	}
	g.Go(func() error { return run.Serve(ctx, ln, gate.guard(k.routes()), config, 2*time.Second, k.env.Log) })
	return g.Wait()
}

// routes returns the kubelet's handlers. All paths but the last are upstream's.
func (k *Kubelet) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", k.env.Handler())
	mux.Handle("GET /healthz", k.env.Handler())
	mux.HandleFunc("GET /healthz/{check}", k.env.Handler().ServeHTTP)
	pages := k.env.Pages(false)
	for _, path := range []string{"/statusz", "/flagz", "/configz"} {
		mux.Handle("GET "+path, pages)
	}
	mux.HandleFunc("GET /pods", k.servePods)
	mux.HandleFunc("GET /pods/", k.servePods)
	mux.HandleFunc("GET /stats/summary", k.serveSummary)
	mux.HandleFunc("POST /stats/summary", k.serveSummary)
	mux.HandleFunc("GET /metrics/resource", k.serveResourceMetrics)
	mux.Handle("GET /metrics/probes", k.metrics.Probes.Handler())
	mux.Handle("GET /metrics/cadvisor", k.cadvisor())
	mux.Handle("GET /metrics/slis", k.env.Handler())
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	for _, method := range []string{"GET", "POST"} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", k.serveExec)
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{uid}/{container}", k.serveExec)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{container}", k.serveAttach)
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{uid}/{container}", k.serveAttach)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}", k.servePortForward)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}/{uid}", k.servePortForward)
	}
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", k.serveRun)
	mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.HandlerFunc(k.serveFiles)))
	mux.HandleFunc("DELETE /"+directory.Resource+"/{name}", k.serveRemoveVolume)
	mux.HandleFunc("PUT /"+directory.Resource+"/{name}", k.serveGrowVolume)
	return mux
}

// serveFiles serves the directory of the machine's logs. It does not follow links that lead out of the directory.
func (k *Kubelet) serveFiles(w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(filepath.Dir(string(k.logs)))
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

func (k *Kubelet) servePods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{}
	list.Kind, list.APIVersion = "PodList", "v1"
	k.mu.Lock()
	for _, worker := range k.workers {
		worker.mu.Lock()
		list.Items = append(list.Items, *worker.pod)
		worker.mu.Unlock()
	}
	k.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// findPod returns the pod that a request names.
func (k *Kubelet) findPod(r *http.Request) (*corev1.Pod, error) {
	namespace, name, uid := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid")
	k.mu.Lock()
	defer k.mu.Unlock()
	var found *corev1.Pod
	for _, w := range k.workers {
		w.mu.Lock()
		p, gone := w.pod, w.removed
		w.mu.Unlock()
		if p.Namespace == namespace && p.Name == name && (uid == "" || string(p.UID) == uid || pod.IsStatic(p)) &&
			(found == nil || !gone) {
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("pod %q not found in namespace %q on node %s", name, namespace, k.name)
	}
	return found, nil
}

// findContainer returns the pod and the container that a request names.
func (k *Kubelet) findContainer(r *http.Request, previous bool) (*corev1.Pod, pod.Container, error) {
	p, err := k.findPod(r)
	if err != nil {
		return nil, pod.Container{}, err
	}
	name := r.PathValue("container")
	if pod.Find(p, name) == nil {
		return nil, pod.Container{}, fmt.Errorf("container %q not found in pod %q", name, p.Name)
	}
	_, containers, err := cri.Observer{Runtime: k.runtime}.Pod(r.Context(), string(p.UID), map[string]pod.Container{})
	if err != nil {
		return nil, pod.Container{}, err
	}
	c, ok := latestAttempt(containers, name, previous)
	switch {
	case !ok && previous:
		return p, c, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
	case !ok:
		return p, c, fmt.Errorf("container %q in pod %q is waiting to start: %s", name, p.Name, waitingReason(p, name))
	}
	return p, c, nil
}

// removedContainer returns an ended container of a pod from the pod's status, when the runtime no longer has the
// container. Its log may still exist.
func removedContainer(p *corev1.Pod, name string, previous bool) (pod.Container, bool) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		ended := s.State.Terminated
		if s.Name != name || ended == nil || previous && s.RestartCount == 0 {
			continue
		}
		attempt := uint32(s.RestartCount)
		if previous {
			attempt--
		}
		_, id, _ := strings.Cut(ended.ContainerID, "://")
		return pod.Container{ID: id, Name: name, Attempt: attempt, State: pod.Exited}, true
	}
	return pod.Container{}, false
}

func waitingReason(p *corev1.Pod, name string) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		if s.Name == name && s.State.Waiting != nil {
			switch s.State.Waiting.Reason {
			case "ErrImagePull", "ImagePullBackOff":
				return "trying and failing to pull image"
			}
			return s.State.Waiting.Reason
		}
	}
	return "ContainerCreating"
}

func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	q, values := logs.Options{Tail: -1, Limit: -1}, r.URL.Query()
	q.Follow, q.Timestamps = isSet(values, "follow"), isSet(values, "timestamps")
	previous := isSet(values, "previous")
	number := func(name string, at *int64) bool {
		if s := values.Get(name); s != "" {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 0 {
				http.Error(w, "invalid "+name, http.StatusBadRequest)
				return false
			}
			*at = n
		}
		return true
	}
	seconds := int64(-1)
	if !number("tailLines", &q.Tail) || !number("limitBytes", &q.Limit) || !number("sinceSeconds", &seconds) {
		return
	}
	if seconds >= 0 {
		q.Since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if s := values.Get("sinceTime"); s != "" {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			http.Error(w, "invalid sinceTime", http.StatusBadRequest)
			return
		}
		q.Since = at
	}
	switch values.Get("stream") {
	case "Stdout":
		q.Stream = "stdout"
	case "Stderr":
		q.Stream = "stderr"
	}
	p, c, err := k.findContainer(r, previous)
	if err != nil && p != nil {
		if was, ok := removedContainer(p, r.PathValue("container"), previous); ok {
			c, err = was, nil
		}
	}
	if err != nil {
		code := http.StatusBadRequest
		if p == nil {
			code = http.StatusNotFound
		}
		http.Error(w, err.Error(), code)
		return
	}
	path := k.logs.Path(p, c.Name, c.Attempt)
	if log, err := k.logs.Open(path); err == nil {
		log.Close()
	} else {
		http.Error(w, fmt.Sprintf("unable to retrieve container logs for "+
			"%s://%s", k.runtimeName, c.ID), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Transfer-Encoding", "chunked")
	out := &flusher{w: w}
	if q.Follow {
		out.Flush()
	}
	ended := func() bool {
		s, err := k.runtime.ContainerStatus(r.Context(), c.ID)
		return err != nil || s.State != criapi.ContainerState_CONTAINER_RUNNING
	}
	if err := k.logs.Write(r.Context(), path, q, ended, out); err != nil {
		k.env.Log.Debug("serve log", "path", path, "error", err)
	}
}

// flusher flushes the response whenever there is nothing more to write for the moment.
type flusher struct{ w http.ResponseWriter }

func (f *flusher) Write(b []byte) (int, error) { return f.w.Write(b) }

// Flush sends what was written.
func (f *flusher) Flush() { _ = http.NewResponseController(f.w).Flush() }

var _ io.Writer = (*flusher)(nil)

func (k *Kubelet) serveRun(w http.ResponseWriter, r *http.Request) {
	_, c, err := k.findContainer(r, false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	stdout, stderr, _, err := k.runtime.ExecSync(ctx, c.ID, r.URL.Query()["cmd"], time.Minute)
	if err != nil {
		http.Error(w, cri.Message(err), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(append(stdout, stderr...))
}

// latestAttempt returns the newest attempt of a container, or the one before it if previous is set.
func latestAttempt(containers []pod.Container, name string, previous bool) (pod.Container, bool) {
	skip := previous
	for _, c := range containers {
		if c.Name != name || c.State == pod.Created {
			continue
		}
		if skip {
			skip = false
			continue
		}
		return c, true
	}
	return pod.Container{}, false
}
