package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
)

// exec runs a command in a pod through the API.
func (n *node) exec(pod string, stdin io.Reader, command ...string) (stdout, stderr string, err error) {
	q := n.admin.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "main", Command: command, Stdin: stdin != nil, Stdout: true,
			Stderr: true}, scheme.ParameterCodec)
	e, err := remotecommand.NewSPDYExecutor(n.config, http.MethodPost, q.URL())
	if err != nil {
		return "", "", err
	}
	var out, bad bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &bad})
	return out.String(), bad.String(), err
}

// Proves S08.
func TestLogsExecAndPortForward(t *testing.T) {
	n := startNode(t)
	n.createPod(
		n.newShellPod(
			"web",
			`echo one; echo two; echo three; mkdir /www; echo hello >/www/index.html; httpd -p 8080 -h /www; while true; do sleep 1; done`,
			nil,
		),
	)
	n.waitFor("the pod to be ready", func() bool { return isReady(n.getPod("web")) })
	n.waitFor("its log", func() bool { return strings.Contains(n.logOf("web", corev1.PodLogOptions{}), "three") })
	if got := n.logOf("web", corev1.PodLogOptions{}); got != "one\ntwo\nthree\n" {
		t.Errorf("log is %q", got)
	}
	one, four := int64(1), int64(4)
	if got := n.logOf("web", corev1.PodLogOptions{TailLines: &one}); got != "three\n" {
		t.Errorf("its last line is %q", got)
	}
	if got := n.logOf("web", corev1.PodLogOptions{LimitBytes: &four}); got != "one\n" {
		t.Errorf("its first four bytes are %q", got)
	}
	if got := n.logOf("web", corev1.PodLogOptions{Timestamps: true, TailLines: &one}); !strings.HasSuffix(got,
		"Z three\n") {
		t.Errorf("with its time it is %q", got)
	}
	out, bad, err := n.exec("web", strings.NewReader("typed"), "sh", "-c", "cat; echo oops >&2; exit 3")
	if out != "typed" || bad != "oops\n" || err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("exec: %q, %q, %v", out, bad, err)
	}
	n.testPortForward(t)
	// A followed log ends with the container, and is complete.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	stream, err := n.admin.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	n.deletePod("web")
	if all, err := io.ReadAll(stream); err != nil || string(all) != "one\ntwo\nthree\n" {
		t.Errorf("followed: %q, %v", all, err)
	}
	n.checkUnauthenticated(t)
}

// testPortForward connects to the pod's web server through the API.
func (n *node) testPortForward(t *testing.T) {
	t.Helper()
	transport, upgrader, err := spdy.RoundTripperFor(n.config)
	if err != nil {
		t.Fatal(err)
	}
	u := n.admin.CoreV1().
		RESTClient().
		Post().
		Resource("pods").
		Namespace("default").
		Name("web").
		SubResource("portforward").
		URL()
	n.testPortForwardOver(t, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u))
}

// testPortForwardOver connects to the pod's web server with one of two protocols.
func (n *node) testPortForwardOver(t *testing.T, dialer httpstream.Dialer) {
	t.Helper()
	stop, up := make(chan struct{}), make(chan struct{})
	f, err := portforward.New(dialer, []string{"0:8080"}, stop, up, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	defer func() {
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-up:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); string(b) != "hello\n" {
		t.Errorf("the forwarded port says %q", b)
	}
}

// checkUnauthenticated checks that the kubelet refuses unauthenticated clients.
func (n *node) checkUnauthenticated(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:10250")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	insecure := *n.config
	insecure.CertData, insecure.KeyData, insecure.Insecure, insecure.CAData = nil, nil, true, nil
	client := http.Client{Transport: mustTransport(t, &insecure)}
	r, err := client.Get("https://127.0.0.1:10250/pods")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger gets %s", r.Status)
	}
}
