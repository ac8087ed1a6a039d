package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/moby/spdystream/spdy"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"

	"clusterctl/daemons/apiserver/request"
)

// streamEndTimeout is how long a stream may take to end after its client has left, on a busy machine.
const streamEndTimeout = closeTimeout + 25*time.Second

// FuzzChannels runs exec over a WebSocket, with arbitrary data from the client and the kubelet. The server must survive
// both and finish when the client has left.
func FuzzChannels(f *testing.F) {
	command := bytes.Join([][]byte{
		maskedFrame(
			2,
			[]byte("\x00input"),
		), maskedFrame(9, []byte("ping")), maskedFrame(2, []byte(`{"Width":80,"Height":24}`)), maskedFrame(2, []byte{255, 0}),
	}, nil)
	f.Add(command, kubeletFrames(f, true, spdy.DataFrame{StreamId: 5, Data: []byte("output")},
		spdy.DataFrame{StreamId: 7, Flags: spdy.DataFlagFin}, spdy.DataFrame{StreamId: 1, Flags: spdy.DataFlagFin}))
	f.Add(
		maskedFrame(2, []byte("\x04"+`{"Width":80,"Height":24}`)),
		kubeletFrames(
			f,
			true,
			spdy.DataFrame{
				StreamId: 1,
				Data: []byte(
					`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`,
				),
				Flags: spdy.DataFlagFin,
			},
		),
	)
	f.Add(maskedFrame(8, []byte{3, 232}), kubeletFrames(f, false))
	f.Add(maskedFrame(1, []byte("text")),
		kubeletFrames(f, true, spdy.DataFrame{StreamId: 99, Data: []byte("nobody's")}))
	f.Add(maskedFrame(0, []byte("continued")), []byte("\x80\x03\x00\x01\x00\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, client, kubelet []byte) {
		q, transport, end := newUpgrade(t, "v5.channel.k8s.io", client, kubelet)
		defer end()
		_, _ = New(Config{Log: slog.New(slog.DiscardHandler)}, nil).runTranslation(q,
			&url.URL{Scheme: "http", Host: "kubelet", Path: "/exec"}, transport)
	})
}

// FuzzTunnel is like FuzzChannels, for port-forward over SPDY inside a WebSocket.
func FuzzTunnel(f *testing.F) {
	f.Add(maskedFrame(2, kubeletFrames(f, false, spdy.DataFrame{StreamId: 1, Data: []byte("to the port")})),
		kubeletFrames(f, true))
	f.Add(
		bytes.Join(
			[][]byte{maskedFrame(2|notFinal, []byte("a")), maskedFrame(0, []byte("b")), maskedFrame(9, nil),
				maskedFrame(8, []byte{3, 232})},
			nil,
		),
		[]byte("bytes"),
	)
	f.Add(maskedFrame(1, []byte("text")), []byte{})
	f.Add([]byte("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff"), []byte{0})
	f.Fuzz(func(t *testing.T, client, kubelet []byte) {
		q, transport, end := newUpgrade(t, "SPDY/3.1+portforward.k8s.io", client, kubelet)
		defer end()
		_, _ = New(Config{Log: slog.New(slog.DiscardHandler)}, nil).runTunnel(q,
			&url.URL{Scheme: "http", Host: "kubelet", Path: "/portForward"}, transport)
	})
}

const notFinal = 0x80 // not an opcode: masked then clears the FIN bit

// maskedFrame returns a WebSocket frame of a client, with a mask of zeros.
func maskedFrame(opcode byte, payload []byte) []byte {
	frame := []byte{0x80 | opcode, 0x80}
	if opcode&notFinal != 0 {
		frame[0] = opcode &^ notFinal
	}
	if n := len(payload); n < 126 {
		frame[1] |= byte(n)
	} else {
		frame[1] |= 126
		frame = binary.BigEndian.AppendUint16(frame, uint16(n))
	}
	return append(append(frame, 0, 0, 0, 0), payload...)
}

// kubeletFrames returns a kubelet's SPDY frames: with takes, replies to the four streams of a command, and then the
// rest.
func kubeletFrames(f *testing.F, takes bool, rest ...spdy.DataFrame) []byte {
	f.Helper()
	var out bytes.Buffer
	framer, err := spdy.NewFramer(&out, &out)
	if err != nil {
		f.Fatal(err)
	}
	var frames []spdy.Frame
	for id := spdy.StreamId(1); takes && id <= 7; id += 2 {
		frames = append(frames, &spdy.SynReplyFrame{StreamId: id, Headers: http.Header{}})
	}
	if !takes {
		frames = append(
			frames,
			&spdy.PingFrame{Id: 2},
			&spdy.RstStreamFrame{StreamId: 1, Status: spdy.RefusedStream},
			&spdy.WindowUpdateFrame{StreamId: 1, DeltaWindowSize: 1},
			&spdy.SettingsFrame{
				FlagIdValues: []spdy.SettingsFlagIdValue{{Id: spdy.SettingsInitialWindowSize, Value: 1}},
			},
			&spdy.GoAwayFrame{},
		)
	}
	for i := range rest {
		frames = append(frames, &rest[i])
	}
	for _, frame := range frames {
		if err := framer.WriteFrame(frame); err != nil {
			f.Fatal(err)
		}
	}
	return out.Bytes()
}

// hijackedWriter is a response writer whose connection can be hijacked.
type hijackedWriter struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t hijackedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}

// newUpgrade returns an upgrade request and a transport to a kubelet. The client and the kubelet send the given bytes,
// and close their connections when both have been read, or when one is not read any more. end fails the test if the
// server does not close its connections in time.
func newUpgrade(t *testing.T, spoken string, client, kubelet []byte) (q *request.Request, transport *http.Transport,
	end func()) {
	ctx, cancel := context.WithTimeout(t.Context(), streamEndTimeout)
	near, far := net.Pipe()
	heard, left := make(chan struct{}), make(chan struct{})
	transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			a, b := net.Pipe()
			go serveUpgrade(b, kubelet, heard)
			go func() {
				<-left
				_ = b.Close()
			}()
			return a, nil
		},
	}
	go func() {
		defer close(left)
		defer far.Close()
		_ = far.SetDeadline(time.Now().Add(streamEndTimeout))
		in := bufio.NewReader(far)
		if _, err := http.ReadResponse(in, nil); err != nil {
			return
		}
		refused := make(chan struct{})
		go func() {
			defer close(refused)
			_, _ = io.Copy(io.Discard, in)
		}()
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = far.Write(client) // the server may have closed the connection
		}()
		for _, enough := range []chan struct{}{written, heard} {
			select {
			case <-enough:
			case <-refused:
			case <-time.After(100 * time.Millisecond): // the server waits for the other side, which has nothing to send
			}
		}
		_ = far.Close()
		<-refused
		<-written
	}()
	r := httptest.NewRequest(http.MethodGet, "/?stdin=1&stdout=1&stderr=1&tty=0&command=c", nil).WithContext(ctx)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key":      "dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol": spoken, "Origin": "http://example.com",
	} {
		r.Header.Set(name, value)
	}
	q = &request.Request{HTTP: r, Answer: &request.Answer{}, Query: r.URL.Query()}
	q.Answer.ResponseWriter = hijackedWriter{httptest.NewRecorder(), near}
	return q, transport, func() {
		defer cancel()
		_ = near.Close() // closed already, unless it was not hijacked
		<-left
		if ctx.Err() != nil {
			t.Error("the stream outlived its client")
		}
	}
}

// serveUpgrade is a kubelet that accepts an upgrade and sends bytes. It sends what looks like the replies to four
// streams one by one, as the streams are requested, and then the rest.
func serveUpgrade(conn net.Conn, data []byte, heard chan<- struct{}) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(streamEndTimeout))
	in := bufio.NewReader(conn)
	if _, err := http.ReadRequest(in); err != nil {
		close(heard)
		return
	}
	requested := make(chan struct{}, 4)
	go func() {
		defer close(heard)
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+
			"SPDY/3.1\r\nX-Stream-Protocol-Version: %s\r\n\r\n", protocol.StreamProtocolV5Name)
		for range 4 {
			n := len(data)
			if n > 8 { // the frame header has the length of the rest
				n = min(n, 8+int(data[5])<<16+int(data[6])<<8+int(data[7]))
			}
			if _, ok := <-requested; !ok {
				return
			}
			_, _ = conn.Write(data[:n]) // the server may have closed the connection
			data = data[n:]
		}
		_, _ = conn.Write(data) // see above
	}()
	defer close(requested)
	for buf := make([]byte, 4<<10); ; {
		if _, err := in.Read(buf); err != nil {
			return
		}
		select {
		case requested <- struct{}{}:
		default:
		}
	}
}
