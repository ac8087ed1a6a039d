// Package node tests one real node from outside: the API server with a store in memory, the kubelet, and the bundle's
// containerd, all on this machine.
package node

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
	"clusterctl/tests/lab/containerdtest"
)

func TestMain(m *testing.M) { containerdtest.Main(m) }

const nodeName = "n1"

// node is the machine under test.
type node struct {
	*testing.T
	ca         certs.Pair
	api        string
	admin      *kubernetes.Clientset
	config     *rest.Config
	containerd *containerdtest.Containerd
	cri        *cri.Client
	cfg        config.Kubelet
	file       config.KubeletFile
	logs       string
	stop       func() // stops the kubelet
	log        *slog.Logger
}

func writeFile(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func startNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, containerd: containerdtest.Start(t), stop: func() {}}
	n.log = slog.New(slog.NewTextHandler(output{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n.serveAPI()
	n.admin, n.config = n.client(certs.SuperAdmin())
	ctx := context.Background()
	if _, err := n.admin.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if _, err := n.admin.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"},
			Data: map[string]string{"ca.crt": string(n.ca.Cert)}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.configure()
	n.startKubelet()
	n.waitFor("the node to be ready", func() bool {
		got, err := n.admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err == nil && isNodeReady(got)
	})
	// The controller that removes the taint does not run here.
	n.untaint()
	return n
}

func isNodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (n *node) untaint() { n.patchNode(`{"spec":{"taints":null}}`) }

// patchNode changes the Node, which the kubelet writes too.
func (n *node) patchNode(patch string) {
	n.Helper()
	if _, err := n.admin.CoreV1().Nodes().Patch(context.Background(), nodeName, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		n.Fatal(err)
	}
}

// serveAPI starts the API server as the daemon runs it.
func (n *node) serveAPI() {
	t, dir, now := n.T, filepath.Join(n.containerd.Dir, "pki"), time.Now()
	var err error
	if n.ca, err = certs.NewCA("kubernetes", 0, now); err != nil {
		t.Fatal(err)
	}
	issue := func(r certs.Request) certs.Pair {
		p, err := certs.Issue(n.ca, r, now)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	server, towards := issue(certs.APIServer("cluster.local", "10.96.0.1", nil)), issue(certs.APIServerKubeletClient())
	private, public, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultAPIServer()
	cfg.AdvertiseAddress = "127.0.0.1"
	cfg.TLSCertFile, cfg.TLSPrivateKeyFile = writeFile(t, dir+"/s.crt", server.Cert),
		writeFile(t, dir+"/s.key", server.Key)
	cfg.ClientCAFile = writeFile(t, dir+"/ca.crt", n.ca.Cert)
	cfg.KubeletCertificateAuthority = cfg.ClientCAFile
	cfg.KubeletClientCertificate, cfg.KubeletClientKey = writeFile(t, dir+"/k.crt", towards.Cert), writeFile(t,
		dir+"/k.key", towards.Key)
	cfg.ServiceAccountSigningKeyFile = writeFile(t, dir+"/sa.key", private)
	cfg.ServiceAccountKeyFiles = []string{writeFile(t, dir+"/sa.pub", public)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.SecurePort = ln.Addr().(*net.TCPAddr).Port
	n.api = ln.Addr().String()
	store := memory.New()
	env := run.NewEnv(n.log.With("daemon", "kube-apiserver"))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- apiserver.Serve(ctx, cfg, store, ln, env) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		store.Close()
	})
	n.waitFor("the API server", func() bool { return env.Health.Err(true) == nil })
}

func (n *node) client(r certs.Request) (*kubernetes.Clientset, *rest.Config) {
	n.Helper()
	r.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	pair, err := certs.Issue(n.ca, r, time.Now())
	if err != nil {
		n.Fatal(err)
	}
	cfg := &rest.Config{
		Host:            "https://" + n.api,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: n.ca.Cert, CertData: pair.Cert, KeyData: pair.Key},
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		n.Fatal(err)
	}
	return c, cfg
}

func (n *node) configure() {
	t, now := n.T, time.Now()
	n.cfg, n.file = config.DefaultKubelet(), config.DefaultKubeletFile()
	dir := n.containerd.Dir
	client, err := certs.Issue(n.ca, certs.Node(nodeName), now)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := certs.Kubeconfig("test", "https://"+n.api, "system:node:"+nodeName, n.ca.Cert, client)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := certs.Issue(n.ca, certs.KubeletServer(nodeName, nil), now)
	if err != nil {
		t.Fatal(err)
	}
	n.cfg.Kubeconfig = writeFile(t, dir+"/kubelet.conf", kubeconfig)
	n.cfg.RootDir, n.cfg.HostnameOverride, n.cfg.NodeIP = filepath.Join(dir, "kubelet"), nodeName, []string{"127.0.0.1"}
	n.file.TLSCertFile, n.file.TLSPrivateKeyFile = writeFile(t, dir+"/pki/ks.crt", serving.Cert), writeFile(t,
		dir+"/pki/ks.key", serving.Key)
	n.file.Authentication.X509.ClientCAFile = dir + "/pki/ca.crt"
	n.file.ContainerRuntimeEndpoint = n.containerd.Endpoint
	// The thresholds are low, so that the disk usage of the machine that runs the tests does not matter.
	n.file.EvictionHard = map[string]string{
		"memory.available":  "100Mi",
		"nodefs.available":  "1Gi",
		"nodefs.inodesFree": "1%",
		"imagefs.available": "1Gi",
	}
	n.file.ClusterDNS = []string{"10.96.0.10"}
	n.file.CgroupRoot = "/" + filepath.Base(dir)
	n.file.StaticPodPath = filepath.Join(dir, "manifests")
	n.logs = filepath.Join(dir, "log", "pods")
	if n.cri, err = cri.Dial(n.containerd.Endpoint); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.cleanUp)
}

// cleanUp removes what the kubelet leaves running when it ends.
func (n *node) cleanUp() {
	n.stop()
	ctx := context.Background()
	boxes, _ := n.cri.ListPodSandbox(ctx, nil)
	for _, b := range boxes {
		_ = n.cri.StopPodSandbox(ctx, b.Id)
		_ = n.cri.RemovePodSandbox(ctx, b.Id)
	}
	_ = n.cri.Close()
	for _, tree := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids",
		"systemd", "unified", ""} {
		removeCgroups(filepath.Join("/sys/fs/cgroup", tree, n.file.CgroupRoot))
	}
}

func removeCgroups(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeCgroups(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}

// startKubelet starts the kubelet, for the first time or again.
func (n *node) startKubelet() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- kubelet.RunWith(ctx, n.cfg, n.file, run.NewEnv(n.log.With("daemon", "kubelet")),
			kubelet.Options{LogRoot: n.logs})
	}()
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			n.Errorf("kubelet ended with %v", err)
		}
		n.stop = func() {}
	}
}

type output struct{ t *testing.T }

func (o output) Write(b []byte) (int, error) { o.t.Log(string(bytes.TrimSpace(b))); return len(b), nil }

var _ io.Writer = output{}

// waitFor waits for a condition and returns how long it took.
func (n *node) waitFor(what string, ok func() bool) time.Duration {
	n.Helper()
	return n.waitAtMost(time.Minute, what, ok)
}

func (n *node) waitAtMost(limit time.Duration, what string, ok func() bool) time.Duration {
	n.Helper()
	start, deadline, tick := time.Now(), time.After(limit), time.NewTicker(3*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			n.Fatalf("timed out waiting for %s", what)
		case <-tick.C:
		}
	}
	return time.Since(start)
}

func (n *node) getPod(name string) *corev1.Pod {
	p, err := n.admin.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return p
}

func (n *node) createPod(p *corev1.Pod) *corev1.Pod {
	n.Helper()
	got, err := n.admin.CoreV1().Pods("default").Create(context.Background(), p, metav1.CreateOptions{})
	if err != nil {
		n.Fatal(err)
	}
	return got
}

func (n *node) deletePod(name string) {
	n.Helper()
	if err := n.admin.CoreV1().Pods("default").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		n.Fatal(err)
	}
}

func isReady(p *corev1.Pod) bool {
	if p != nil {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
	}
	return false
}

// newShellPod returns a pod that runs a script on this node.
func (n *node) newShellPod(name, script string, change func(*corev1.Pod)) *corev1.Pod {
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{NodeName: nodeName, TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
			Name: "main", Image: n.containerd.Busybox, Command: []string{"/bin/sh", "-c", script},
		}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

// logOf returns the log of a pod's container through the API.
func (n *node) logOf(name string, o corev1.PodLogOptions) string {
	data, err := n.admin.CoreV1().Pods("default").GetLogs(name, &o).DoRaw(context.Background())
	if err != nil {
		return fmt.Sprintf("error: %v", err)
	}
	return string(data)
}
