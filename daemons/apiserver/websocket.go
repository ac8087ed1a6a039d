package apiserver

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
)

// channelProtocols are those that are spoken with clients here. A kubelet has the older
// ones itself, without word of the end of standard input or of a command's exit code.
var channelProtocols = []string{protocol.StreamProtocolV5Name, protocol.StreamProtocolV4Name}

// channelIdle is how long nothing may come or go, upstream's.
const channelIdle = 4 * time.Hour

// speaksChannels says whether a client wants to exec or attach over a WebSocket in a
// protocol that is spoken here.
func speaksChannels(r *http.Request) bool {
	return wsstream.IsWebSocketRequest(r) &&
		slices.ContainsFunc(offered(r), func(p string) bool { return slices.Contains(channelProtocols, p) })
}

// offered lists the WebSocket protocols that a client would take.
func offered(r *http.Request) []string {
	return slices.Collect(header.Elements(r.Header, wsstream.WebSocketProtocolHeader))
}

// translate serves exec and attach over a WebSocket's channels to the client, and asks the
// kubelet over SPDY's streams: kubelets and runtimes know no more.
func (s *Server) translate(q *request, target *url.URL, transport http.RoundTripper) {
	code, err := s.translated(q, target, transport)
	if err != nil {
		s.log.Debug("a stream ended", "path", q.Path, "reason", err)
	}
	s.observed.translated.WithLabelValues(strconv.Itoa(code)).Inc()
}

func (s *Server) translated(q *request, target *url.URL, transport http.RoundTripper) (int, error) {
	ctx, cancel := context.WithCancel(q.http.Context())
	defer cancel()
	in, out, bad, tty := truth(
		q.query,
		"stdin",
	), truth(
		q.query,
		"stdout",
	), truth(
		q.query,
		"stderr",
	), truth(
		q.query,
		"tty",
	)
	channels := make([]wsstream.ChannelType, 5)
	channels[protocol.StreamStdIn] = channelIf(in, wsstream.ReadChannel)
	channels[protocol.StreamStdOut] = channelIf(out, wsstream.WriteChannel)
	channels[protocol.StreamStdErr] = channelIf(bad && !tty, wsstream.WriteChannel)
	channels[protocol.StreamErr] = wsstream.WriteChannel
	channels[protocol.StreamResize] = wsstream.ReadChannel
	spoken := map[string]wsstream.ChannelProtocolConfig{}
	for _, p := range channelProtocols {
		spoken[p] = wsstream.ChannelProtocolConfig{Binary: true, Channels: channels}
	}
	conn := wsstream.NewConn(spoken)
	conn.SetIdleTimeout(channelIdle)
	_, streams, err := conn.Open(&attended{ResponseWriter: q.w, gone: cancel}, q.http)
	if err != nil {
		return http.StatusBadRequest, err
	}
	sizes := &sizeQueue{ctx: ctx, sizes: make(chan remotecommand.TerminalSize)}
	var resizing sync.WaitGroup
	defer resizing.Wait()
	defer cancel()
	defer conn.Close()
	resizing.Go(func() { sizes.read(streams[protocol.StreamResize]) })
	// Clients take a first message, which may be empty, for the word that all is well.
	first := protocol.StreamErr
	switch {
	case out:
		first = protocol.StreamStdOut
	case bad && !tty:
		first = protocol.StreamStdErr
	}
	if _, err := streams[first].Write(nil); err != nil {
		return http.StatusInternalServerError, fmt.Errorf("greet the client: %w", err)
	}
	options := remotecommand.StreamOptions{Tty: tty}
	if in {
		options.Stdin = streams[protocol.StreamStdIn]
	}
	if out {
		options.Stdout = streams[protocol.StreamStdOut]
	}
	if bad && !tty {
		options.Stderr = streams[protocol.StreamStdErr]
	}
	if tty {
		options.TerminalSizeQueue = sizes
	}
	// A stream that is being opened is waited for, whoever has gone.
	transport = attentive(transport, func() { time.AfterFunc(lastWords, cancel) })
	code, status := outcome(overSPDY(ctx, target, transport, options))
	data, err := json.Marshal(status)
	if err != nil {
		return code, err
	}
	conn.SetWriteDeadline(lastWords)
	_, err = streams[protocol.StreamErr].Write(data)
	return code, err
}

func channelIf(wanted bool, kind wsstream.ChannelType) wsstream.ChannelType {
	if wanted {
		return kind
	}
	return wsstream.IgnoreChannel
}

// overSPDY joins streams with those of a kubelet until the command is over.
func overSPDY(
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
	said := &verdicts{UpgradeRoundTripper: trip}
	executor, err := remotecommand.NewSPDYExecutorRejectRedirects(
		trip,
		clientspdy.NewUpgraderForStreaming(said),
		http.MethodPost,
		target,
	)
	if err != nil {
		return err
	}
	if err := executor.StreamWithContext(ctx, options); err != nil {
		return err
	}
	if said.missing() {
		return errNoVerdict
	}
	return nil
}

// outcome is what a client is told in the end, and what is counted.
func outcome(err error) (int, metav1.Status) {
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

// sizeQueue hands on how large a client's terminal is.
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

// maxSize is how long the text of a size may be.
const maxSize = 4 << 10

// read takes sizes from a client until it is gone or says something else.
func (z *sizeQueue) read(from io.Reader) {
	defer close(z.sizes)
	// The decoder keeps what it has read of a value until that is whole.
	short := &io.LimitedReader{R: from}
	for decoder := json.NewDecoder(short); ; {
		var size remotecommand.TerminalSize
		short.N = maxSize
		if decoder.Decode(&size) != nil {
			break
		}
		select {
		case z.sizes <- size:
		case <-z.ctx.Done():
			return
		}
	}
	// What still comes has to be taken, or it would be in the way of the other channels.
	_, _ = io.Copy(io.Discard, from)
}
