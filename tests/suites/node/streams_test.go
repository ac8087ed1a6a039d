package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
)

// streamWait is the maximum time of a transfer, for a busy machine.
const streamWait = 2 * time.Minute

// stream runs kubectl exec or attach with one protocol.
func (n *node) stream(
	protocol, pod, sub string,
	options *corev1.PodExecOptions,
	streams remotecommand.StreamOptions,
) error {
	u := n.admin.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource(sub).
		VersionedParams(options, scheme.ParameterCodec).URL()
	var e remotecommand.Executor
	var err error
	if protocol == "websocket" {
		e, err = remotecommand.NewWebSocketExecutor(n.config, http.MethodGet, u.String())
	} else {
		e, err = remotecommand.NewSPDYExecutor(n.config, http.MethodPost, u)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), streamWait)
	defer cancel()
	return e.StreamWithContext(ctx, streams)
}

// Proves S08.
func TestStandardInputIsCompleteAfterTheOutputCloses(t *testing.T) {
	n := startNode(t)
	if n.containerd.IsDistribution {
		t.Skip("containerd without the patch cmd/containerd/stdin.patch ends the input too early: its issue 13934")
	}
	n.createPod(n.newShellPod("web", "sleep 1000", nil))
	n.waitFor("the pod to be ready", func() bool { return isReady(n.getPod("web")) })
	data := make([]byte, 10<<20)
	_, _ = rand.Read(data)
	want := fmt.Sprintf("%x", sha256.Sum256(data))
	for _, protocol := range []string{"websocket", "spdy"} {
		// The shell replaces its standard output with the file, as dd does. The last command replaces all of its
		// output.
		for name, command := range map[string]string{
			"reads": "cat >/f; true", "closes": "exec cat >/f", "closes all": "exec cat >/f 2>&1",
			"dd": "exec busybox dd of=/f bs=4k",
		} {
			var out, bad bytes.Buffer
			err := n.stream(
				protocol,
				"web",
				"exec",
				&corev1.PodExecOptions{
					Container: "main",
					Command:   []string{"sh", "-c", command},
					Stdin:     true,
					Stdout:    true,
					Stderr:    true,
				},
				remotecommand.StreamOptions{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: &bad},
			)
			if err != nil {
				t.Errorf("%s, %s: %v", protocol, name, err)
			}
			var back bytes.Buffer
			if err := n.stream(protocol, "web", "exec",
				&corev1.PodExecOptions{Container: "main", Command: []string{"cat", "/f"}, Stdout: true},
				remotecommand.StreamOptions{Stdout: &back}); err != nil {
				t.Errorf("%s, back: %v", protocol, err)
			}
			if got := fmt.Sprintf("%x", sha256.Sum256(back.Bytes())); got != want {
				t.Errorf("%s, %s: %d of %d bytes came back (%s)", protocol, name, back.Len(), len(data), bad.String())
			}
		}
		// A command that ends does not wait for input that is still open.
		open, hold := io.Pipe()
		err := n.stream(
			protocol,
			"web",
			"exec",
			&corev1.PodExecOptions{
				Container: "main",
				Command:   []string{"sh", "-c", "exit 4"},
				Stdin:     true,
				Stdout:    true,
				Stderr:    true,
			},
			remotecommand.StreamOptions{Stdin: open, Stdout: io.Discard, Stderr: io.Discard},
		)
		hold.Close()
		if err == nil || !strings.Contains(err.Error(), "exit code 4") {
			t.Errorf("%s, with input left open: %v", protocol, err)
		}
	}
}

// Proves S08.
func TestTerminalsAttachAndPortForwardOverWebSockets(t *testing.T) {
	n := startNode(t)
	n.createPod(
		n.newShellPod(
			"web",
			`mkdir /www; echo hello >/www/index.html; httpd -p 8080 -h /www; while read line; do echo "got $line"; done`,
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Stdin = true
			},
		),
	)
	n.waitFor("the pod to be ready", func() bool { return isReady(n.getPod("web")) })
	// A terminal, with its size.
	var out bytes.Buffer
	keyboard, keys := io.Pipe()
	go func() { _, _ = io.WriteString(keys, "typed\n") }()
	err := n.stream(
		"websocket",
		"web",
		"exec",
		&corev1.PodExecOptions{Container: "main", TTY: true, Stdin: true, Stdout: true,
			Command: []string{
				"sh",
				"-c",
				`until [ "$(busybox stty size)" = "33 44" ]; do :; done; read line; echo "size known, $line"`,
			}},
		remotecommand.StreamOptions{Tty: true, Stdin: keyboard, Stdout: &out, TerminalSizeQueue: &oneSize{}},
	)
	keys.Close()
	if err != nil || !strings.Contains(out.String(), "size known, typed") {
		t.Errorf("terminal: %q, %v", out.String(), err)
	}
	n.testAttach(t)
	dialer, err := portforward.NewSPDYOverWebsocketDialer(
		n.admin.CoreV1().
			RESTClient().
			Get().
			Resource("pods").
			Namespace("default").
			Name("web").
			SubResource("portforward").
			URL(),
		n.config,
	)
	if err != nil {
		t.Fatal(err)
	}
	n.testPortForwardOver(t, dialer)
	// A missing container is refused with the kubelet's or the server's message.
	err = n.stream("websocket", "web", "exec",
		&corev1.PodExecOptions{Container: "none", Command: []string{"true"}, Stdout: true},
		remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "container none is not valid for pod web") {
		t.Errorf("no such container: %v", err)
	}
	err = n.stream("websocket", "web", "exec",
		&corev1.PodExecOptions{Container: "main", Command: []string{"no-such-command"}, Stdout: true},
		remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "no-such-command") {
		t.Errorf("no such command: %v", err)
	}
	metrics, err := n.admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`apiserver_stream_translator_requests_total{code="200"} 2`, `apiserver_stream_tunnel_requests_total{code="101"} 1`} {
		if !strings.Contains(string(metrics), want) {
			t.Errorf("the server does not count %s", want)
		}
	}
}

// testAttach attaches to the pod until its input has been answered.
func (n *node) testAttach(t *testing.T) {
	typed, hold := io.Pipe()
	answered, end := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- n.stream("websocket", "web", "attach",
			&corev1.PodExecOptions{Container: "main", Stdin: true, Stdout: true, Stderr: true},
			remotecommand.StreamOptions{Stdin: typed, Stdout: end, Stderr: io.Discard})
	}()
	go func() { _, _ = io.WriteString(hold, "word\n") }()
	if line, err := bufio.NewReader(answered).ReadString('\n'); err != nil || line != "got word\n" {
		t.Errorf("attach: %q, %v", line, err)
	}
	hold.Close()
	if err := <-done; err != nil {
		t.Errorf("attach ended: %v", err)
	}
}

// oneSize returns a terminal's size once.
type oneSize struct{ isSent bool }

// Next implements remotecommand.TerminalSizeQueue.
func (s *oneSize) Next() *remotecommand.TerminalSize {
	if s.isSent {
		return nil
	}
	s.isSent = true
	return &remotecommand.TerminalSize{Width: 44, Height: 33}
}
