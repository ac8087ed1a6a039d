package apiserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/apiserver/wire"
)

// overSocket streams a watch over a WebSocket, which browsers need. Each event is one message, a text message if events
// are JSON. Messages from the client are ignored.
func (w *watcher) overSocket(s *Server, stream func()) error {
	if w.q.media.Format != wire.JSON && w.q.media.Format != wire.Protobuf {
		return apierrors.NewGenericServerResponse(
			http.StatusNotAcceptable,
			w.q.Verb,
			w.q.gr(),
			"",
			"a WebSocket carries events as JSON or protobuf",
			0,
			false,
		)
	}
	header := http.Header{}
	switch offers := offered(w.q.http); len(offers) {
	case 0:
	case 1: // the client requires its protocol to be selected
		header.Set("Sec-WebSocket-Protocol", offers[0])
	default:
		return apierrors.NewBadRequest("a watch has no protocols to choose from: offer one, or none")
	}
	upgrader := websocket.Upgrader{
		HandshakeTimeout: stuckAfter, WriteBufferSize: chunk,
		CheckOrigin: func(*http.Request) bool { return true }, // users authenticate by more than a cookie
	}
	conn, err := upgrader.Upgrade(w.q.w, w.q.http, header)
	if err != nil {
		s.log.Debug("begin a WebSocket", "path", w.q.Path, "reason", err)
		return nil // Upgrade has answered
	}
	defer func() { _ = conn.Close() }() // the client has received the close message
	ctx, gone := context.WithCancel(w.q.http.Context())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer gone()
		conn.SetReadLimit(chunk)
		for {
			if _, _, err := conn.NextReader(); err != nil {
				return
			}
		}
	}()
	w.q.http = w.q.http.WithContext(ctx)
	w.to = &socket{conn: conn, binary: w.q.media.Format == wire.Protobuf}
	w.control = http.NewResponseController(w.to)
	stream()
	end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = conn.WriteControl(websocket.CloseMessage, end, time.Now().Add(time.Second)) // the client may be gone
	_ = conn.Close()
	<-read
	return nil
}

// socket sends each event of a watch as a message. Write receives whole events, often several at once.
type socket struct {
	conn   *websocket.Conn
	binary bool
}

var errTornEvent = errors.New("an event is not whole")

// Write implements http.ResponseWriter.
func (s *socket) Write(data []byte) (int, error) {
	n := 0
	for n < len(data) {
		kind, event, size := websocket.TextMessage, []byte(nil), 0
		if s.binary { // each event has a length prefix
			kind = websocket.BinaryMessage
			if len(data)-n < 4 {
				return n, errTornEvent
			}
			length := binary.BigEndian.Uint32(data[n:])
			if size = 4 + int(length); len(data)-n < size {
				return n, errTornEvent
			}
			event = data[n+4 : n+size]
		} else { // each event is a line
			at := bytes.IndexByte(data[n:], '\n')
			if at < 0 {
				return n, errTornEvent
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
func (s *socket) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (s *socket) WriteHeader(int) {}

// FlushError implements flushing for http.ResponseController. Messages are sent at once, so it does nothing.
func (s *socket) FlushError() error { return nil }

// SetWriteDeadline implements deadlines for http.ResponseController.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }
