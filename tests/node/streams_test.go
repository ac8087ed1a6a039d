package node

import (
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
	"k8s.io/client-go/tools/remotecommand"
)

// streamWait is for a transfer on a machine that is busy with others.
const streamWait = 2 * time.Minute

// stream does what kubectl exec or attach does, over one protocol.
func (n *node) stream(protocol, pod, sub string, options *corev1.PodExecOptions, streams remotecommand.StreamOptions) error {
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

func TestStandardInputArrivesWholeWhenTheCommandClosesItsOutputS08(t *testing.T) {
	n := start(t)
	n.create(n.shell("web", "sleep 1000", nil))
	n.until("the pod to be ready", func() bool { return ready(n.pod("web")) })
	data := make([]byte, 10<<20)
	_, _ = rand.Read(data)
	want := fmt.Sprintf("%x", sha256.Sum256(data))
	for _, protocol := range []string{"spdy"} {
		// The shell puts the file in the place of standard output, as dd does, and all
		// of its output in the last.
		for name, command := range map[string]string{
			"reads": "cat >/f; true", "closes": "exec cat >/f", "closes all": "exec cat >/f 2>&1", "dd": "exec busybox dd of=/f bs=4k",
		} {
			var out, bad bytes.Buffer
			err := n.stream(protocol, "web", "exec", &corev1.PodExecOptions{Container: "main", Command: []string{"sh", "-c", command}, Stdin: true, Stdout: true, Stderr: true},
				remotecommand.StreamOptions{Stdin: bytes.NewReader(data), Stdout: &out, Stderr: &bad})
			if err != nil {
				t.Errorf("%s, %s: %v", protocol, name, err)
			}
			var back bytes.Buffer
			if err := n.stream(protocol, "web", "exec", &corev1.PodExecOptions{Container: "main", Command: []string{"cat", "/f"}, Stdout: true},
				remotecommand.StreamOptions{Stdout: &back}); err != nil {
				t.Errorf("%s, back: %v", protocol, err)
			}
			if got := fmt.Sprintf("%x", sha256.Sum256(back.Bytes())); got != want {
				t.Errorf("%s, %s: %d of %d bytes came back (%s)", protocol, name, back.Len(), len(data), bad.String())
			}
		}
		// A command that ends does not wait for input that is still open.
		open, hold := io.Pipe()
		err := n.stream(protocol, "web", "exec", &corev1.PodExecOptions{Container: "main", Command: []string{"sh", "-c", "exit 4"}, Stdin: true, Stdout: true, Stderr: true},
			remotecommand.StreamOptions{Stdin: open, Stdout: io.Discard, Stderr: io.Discard})
		hold.Close()
		if err == nil || !strings.Contains(err.Error(), "exit code 4") {
			t.Errorf("%s, with input left open: %v", protocol, err)
		}
	}
}
