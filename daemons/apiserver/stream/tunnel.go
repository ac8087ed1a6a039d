package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	protocol "k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"clusterctl/daemons/apiserver/request"
)

// wantsTunnel reports whether a client wants to forward ports over SPDY inside a WebSocket.
func wantsTunnel(r *http.Request) bool {
	return wsstream.IsWebSocketRequest(r) &&
		slices.Contains(offeredProtocols(r), protocol.WebsocketsSPDYTunnelingPortForwardV1)
}

// tunnel connects a client's SPDY inside a WebSocket with the kubelet's plain SPDY.
func (s *Streams) tunnel(q *request.Request, target *url.URL, transport http.RoundTripper) error {
	code, err := s.runTunnel(q, target, transport)
	s.tunnelled.WithLabelValues(strconv.Itoa(code)).Inc()
	return err
}

func (s *Streams) runTunnel(q *request.Request, target *url.URL, transport http.RoundTripper) (int, error) {
	out, err := http.NewRequestWithContext(q.HTTP.Context(), http.MethodPost, target.String(), nil)
	if err != nil {
		return http.StatusInternalServerError, apierrors.NewInternalError(err)
	}
	out.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	out.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	out.Header.Set(httpstream.HeaderProtocolVersion, protocol.PortForwardV1Name)
	answer, err := transport.RoundTrip(out)
	if err != nil {
		return http.StatusInternalServerError, apierrors.NewInternalError(fmt.Errorf("error dialing backend: %w", err))
	}
	defer answer.Body.Close()
	backend, ok := answer.Body.(io.ReadWriteCloser)
	if answer.StatusCode != http.StatusSwitchingProtocols || !ok {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		st := apierrors.NewGenericServerResponse(answer.StatusCode, "create", q.GroupResource(), q.Name, "", 0, true)
		st.ErrStatus.Message = strings.TrimSpace(string(text))
		return answer.StatusCode, st
	}
	upgrader := websocket.Upgrader{
		HandshakeTimeout: dialTimeout, Subprotocols: []string{protocol.WebsocketsSPDYTunnelingPortForwardV1},
		// The user was authenticated by credentials that browsers do not add by themselves.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	conn, err := upgrader.Upgrade(q.Answer, q.HTTP, nil)
	if err != nil {
		return http.StatusBadRequest, errors.Join(request.ErrAnswered, err)
	}
	_ = conn.NetConn().SetDeadline(time.Time{})
	client := portforward.NewTunnelingConnection("server", conn)
	defer context.AfterFunc(q.HTTP.Context(), func() { _, _ = client.Close(), backend.Close() })()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(backend, client)
		_ = backend.Close()
	})
	_, _ = io.Copy(client, backend)
	_ = client.Close()
	both.Wait()
	return http.StatusSwitchingProtocols, nil
}
