package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/request"
)

// channelProtocols are the WebSocket protocols that this server implements itself. The kubelet implements the older
// ones, which cannot signal the end of standard input or an exit code.
var channelProtocols = []string{protocol.StreamProtocolV5Name, protocol.StreamProtocolV4Name}

// channelIdleTimeout is how long a connection may be idle, the same as upstream.
const channelIdleTimeout = 4 * time.Hour

// wantsChannels reports whether a client wants to exec or attach over a WebSocket with one of channelProtocols.
func wantsChannels(r *http.Request) bool {
	return wsstream.IsWebSocketRequest(r) &&
		slices.ContainsFunc(offeredProtocols(r), func(p string) bool { return slices.Contains(channelProtocols, p) })
}

// offeredProtocols returns the WebSocket protocols that a client offers.
func offeredProtocols(r *http.Request) []string {
	return slices.Collect(header.Elements(r.Header, wsstream.WebSocketProtocolHeader))
}

// translate serves exec and attach. It connects the channels of the client's WebSocket with SPDY streams of the
// kubelet, because kubelets and runtimes support only SPDY.
func (s *Streams) translate(q *request.Request, target *url.URL, transport http.RoundTripper) {
	code, err := s.runTranslation(q, target, transport)
	if err != nil {
		s.config.Log.Debug("a stream ended", "path", q.Path, "reason", err)
	}
	s.translated.WithLabelValues(strconv.Itoa(code)).Inc()
}

func (s *Streams) runTranslation(q *request.Request, target *url.URL, transport http.RoundTripper) (int, error) {
	ctx, cancel := context.WithCancel(q.HTTP.Context())
	defer cancel()
	want := wantedStreams(q.Query)
	conn := wsstream.NewConn(want.protocols())
	conn.SetIdleTimeout(channelIdleTimeout)
	_, streams, err := conn.Open(&notifyingWriter{ResponseWriter: q.Answer, onGone: cancel}, q.HTTP)
	if err != nil {
		return http.StatusBadRequest, err
	}
	sizes := &sizeQueue{ctx: ctx, sizes: make(chan remotecommand.TerminalSize)}
	var resizing sync.WaitGroup
	defer resizing.Wait()
	defer cancel()
	defer conn.Close()
	resizing.Go(func() { sizes.read(streams[protocol.StreamResize]) })
	// Clients take a first message, which may be empty, as the sign of success.
	if _, err := streams[want.first()].Write(nil); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("greet the client: %w", err)
	}
	// Opening a stream waits even if the kubelet has gone. So cancel it some time after the kubelet's connection has
	// ended.
	transport = notifyingTransport(transport, func() { time.AfterFunc(closeTimeout, cancel) })
	code, status := streamOutcome(streamOverSPDY(ctx, target, transport, want.options(streams, sizes)))
	data, err := json.Marshal(status)
	if err != nil {
		return code, err
	}
	conn.SetWriteDeadline(closeTimeout)
	_, err = streams[protocol.StreamErr].Write(data)
	return code, err
}

// streamSet is the set of streams of a command that a client wants. With a terminal, stderr has no stream of its own.
type streamSet struct{ stdin, stdout, stderr, tty bool }

func wantedStreams(query url.Values) streamSet {
	w := streamSet{
		stdin: request.BoolParameter(query, "stdin"), stdout: request.BoolParameter(query, "stdout"),
		stderr: request.BoolParameter(query, "stderr"), tty: request.BoolParameter(query, "tty"),
	}
	w.stderr = w.stderr && !w.tty
	return w
}

// protocols returns the channels of the streams, for each of channelProtocols.
func (w streamSet) protocols() map[string]wsstream.ChannelProtocolConfig {
	channels := make([]wsstream.ChannelType, 5)
	channels[protocol.StreamStdIn] = channelOrIgnore(w.stdin, wsstream.ReadChannel)
	channels[protocol.StreamStdOut] = channelOrIgnore(w.stdout, wsstream.WriteChannel)
	channels[protocol.StreamStdErr] = channelOrIgnore(w.stderr, wsstream.WriteChannel)
	channels[protocol.StreamErr] = wsstream.WriteChannel
	channels[protocol.StreamResize] = wsstream.ReadChannel
	all := map[string]wsstream.ChannelProtocolConfig{}
	for _, p := range channelProtocols {
		all[p] = wsstream.ChannelProtocolConfig{Binary: true, Channels: channels}
	}
	return all
}

// first returns the channel that gets the first message.
func (w streamSet) first() int {
	switch {
	case w.stdout:
		return protocol.StreamStdOut
	case w.stderr:
		return protocol.StreamStdErr
	}
	return protocol.StreamErr
}

// options returns the streams as client-go takes them.
func (w streamSet) options(streams []io.ReadWriteCloser, sizes *sizeQueue) remotecommand.StreamOptions {
	o := remotecommand.StreamOptions{Tty: w.tty}
	if w.stdin {
		o.Stdin = streams[protocol.StreamStdIn]
	}
	if w.stdout {
		o.Stdout = streams[protocol.StreamStdOut]
	}
	if w.stderr {
		o.Stderr = streams[protocol.StreamStdErr]
	}
	if w.tty {
		o.TerminalSizeQueue = sizes
	}
	return o
}

func channelOrIgnore(wanted bool, kind wsstream.ChannelType) wsstream.ChannelType {
	if wanted {
		return kind
	}
	return wsstream.IgnoreChannel
}

// streamOverSPDY connects the client's streams with those of a kubelet until the command ends.
func streamOverSPDY(
	ctx context.Context,
	target *url.URL,
	transport http.RoundTripper,
	options remotecommand.StreamOptions,
) error {
	trip, err := spdy.NewRoundTripperWithConfig(
		spdy.RoundTripperConfig{UpgradeTransport: transport, PingPeriod: 5 * time.Second},
	)
	if err != nil {
		return err
	}
	result := &resultTransport{UpgradeRoundTripper: trip}
	executor, err := remotecommand.NewSPDYExecutorRejectRedirects(trip, clientspdy.NewUpgraderForStreaming(result),
		http.MethodPost, target)
	if err != nil {
		return err
	}
	if err := executor.StreamWithContext(ctx, options); err != nil {
		return err
	}
	if result.isMissing() {
		return errNoResult
	}
	return nil
}

// streamOutcome returns the status for the client, and the code for the metrics.
func streamOutcome(err error) (int, metav1.Status) {
	var status apierrors.APIStatus
	var exit exec.CodeExitError
	switch {
	case err == nil:
		return http.StatusOK, metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit) && exit.Exited():
		return http.StatusOK, metav1.Status{
			Status: metav1.StatusFailure, Reason: protocol.NonZeroExitCodeReason,
			Message: fmt.Sprintf("command terminated with non-zero exit code: %v", exit),
			Details: &metav1.StatusDetails{
				Causes: []metav1.StatusCause{
					{Type: protocol.ExitCodeCauseType, Message: strconv.Itoa(exit.ExitStatus())},
				},
			},
		}
	case errors.As(err, &status):
		return int(status.Status().Code), status.Status()
	}
	return http.StatusInternalServerError, apierrors.NewInternalError(err).Status()
}

// sizeQueue passes on the sizes of a client's terminal.
type sizeQueue struct {
	ctx   context.Context //nolint:containedctx // the queue's interface has no room for it
	sizes chan remotecommand.TerminalSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (z *sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case size, ok := <-z.sizes:
		if ok {
			return &size
		}
	case <-z.ctx.Done():
	}
	return nil
}

// maxTerminalSize is the length, in bytes, of the longest encoded size.
const maxTerminalSize = 4 << 10

// read passes on sizes until the client leaves or sends something else.
func (z *sizeQueue) read(from io.Reader) {
	defer close(z.sizes)
	// The decoder buffers an incomplete value without limit.
	short := &io.LimitedReader{R: from}
	for decoder := json.NewDecoder(short); ; {
		var size remotecommand.TerminalSize
		short.N = maxTerminalSize
		if decoder.Decode(&size) != nil {
			break
		}
		select {
		case z.sizes <- size:
		case <-z.ctx.Done():
			return
		}
	}
	// Keep reading, because unread data would block the other channels.
	_, _ = io.Copy(io.Discard, from)
}
