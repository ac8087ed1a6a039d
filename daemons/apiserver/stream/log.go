package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"clusterctl/daemons/apiserver/request"
)

// streamLog sends a pod's log over a WebSocket, as binary messages. With the subprotocol base64.binary.k8s.io it sends
// base64 text. If the kubelet refuses, streamLog returns the error before the connection is upgraded.
func (s *Streams) streamLog(q *request.Request, target *url.URL, transport http.RoundTripper) error {
	ctx, cancel := context.WithCancel(q.HTTP.Context())
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	answer, err := transport.RoundTrip(out)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("error dialing backend: %w", err))
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		st := apierrors.NewGenericServerResponse(answer.StatusCode, "get", schema.GroupResource{Resource: "pods/log"},
			"", "", 0, true)
		st.ErrStatus.Message = strings.TrimSpace(string(text))
		return st
	}
	reader := wsstream.NewReader(&separateEOF{Reader: answer.Body}, true, wsstream.NewDefaultReaderProtocols())
	reader.SetIdleTimeout(channelIdleTimeout)
	if err := reader.Copy(&notifyingWriter{ResponseWriter: q.Answer, onGone: cancel}, q.HTTP); err != nil &&
		!errors.Is(err, context.Canceled) {
		s.config.Log.Debug("a log ended", "path", q.Path, "reason", err)
	}
	return nil
}

// separateEOF returns the last bytes and the end of the input in separate reads. The copying code would drop bytes that
// come together with an error.
type separateEOF struct {
	io.Reader
	end error
}

func (l *separateEOF) Read(p []byte) (int, error) {
	if l.end != nil {
		return 0, l.end
	}
	n, err := l.Reader.Read(p)
	if n > 0 && err != nil {
		l.end, err = err, nil
	}
	return n, err
}
