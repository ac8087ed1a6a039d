package read

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/wire"
)

// streamOverSocket streams a watch over a WebSocket, which browsers need. Each event is one message, a text message if
// events are JSON. Messages from the client are ignored.
func (w *watcher) streamOverSocket(s *Reads, stream func()) error {
	if w.q.Media.Format != wire.JSON && w.q.Media.Format != wire.Protobuf {
		return apierrors.NewGenericServerResponse(http.StatusNotAcceptable, w.q.Verb, w.q.GroupResource(), "",
			"a WebSocket carries events as JSON or protobuf", 0, false)
	}
	answered := http.Header{}
	switch offers := slices.Collect(header.Elements(w.q.HTTP.Header, wsstream.WebSocketProtocolHeader)); len(offers) {
	case 0:
	case 1: // the client requires its protocol to be selected
		answered.Set("Sec-WebSocket-Protocol", offers[0])
	default:
		return apierrors.NewBadRequest("a watch has no protocols to choose from: offer one, or none")
	}
	upgrader := websocket.Upgrader{
		HandshakeTimeout: stuckTimeout, WriteBufferSize: chunkSize,
		CheckOrigin: func(*http.Request) bool { return true }, // users authenticate by more than a cookie
	}
	conn, err := upgrader.Upgrade(w.q.Answer, w.q.HTTP, answered)
	if err != nil {
		s.log.Debug("begin a WebSocket", "path", w.q.Path, "reason", err)
		return nil // Upgrade has answered
	}
	defer func() { _ = conn.Close() }() // the client has received the close message
	ctx, isGone := context.WithCancel(w.q.HTTP.Context())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer isGone()
		conn.SetReadLimit(chunkSize)
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	w.q = w.q.WithContext(ctx)
	w.out = &socketWriter{conn: conn, binary: w.q.Media.Format == wire.Protobuf}
	w.control = http.NewResponseController(w.out)
	stream()
	end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = conn.WriteControl(websocket.CloseMessage, end, time.Now().Add(time.Second)) // the client may be gone
	_ = conn.Close()
	<-read
	return nil
}

// socketWriter sends each event of a watch as a message. Write receives whole events, often several at once.
type socketWriter struct {
	conn   *websocket.Conn
	binary bool
}

var errIncompleteEvent = errors.New("an event is not whole")

// Write implements http.ResponseWriter.
func (s *socketWriter) Write(data []byte) (int, error) {
	n := 0
	for n < len(data) {
		kind, event, size := websocket.TextMessage, []byte(nil), 0
		if s.binary { // each event has a length prefix
			kind = websocket.BinaryMessage
			if len(data)-n < 4 {
				return n, errIncompleteEvent
			}
			length := binary.BigEndian.Uint32(data[n:])
			if size = 4 + int(length); len(data)-n < size {
				return n, errIncompleteEvent
			}
			event = data[n+4 : n+size]
		} else { // each event is a line
			at := bytes.IndexByte(data[n:], '\n')
			if at < 0 {
				return n, errIncompleteEvent
			}
			size = at + 1
			event = data[n : n+size]
		}
		if err := s.conn.WriteMessage(kind, event); err != nil {
			return n, err
		}
		n += size
	}
	return n, nil
}

// Header implements http.ResponseWriter. The response has begun, so the header has no effect.
func (s *socketWriter) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (s *socketWriter) WriteHeader(int) {}

// FlushError implements flushing for http.ResponseController. Messages are sent at once, so it does nothing.
func (s *socketWriter) FlushError() error { return nil }

// SetWriteDeadline implements deadlines for http.ResponseController.
func (s *socketWriter) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }
