package h2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"clusterctl/daemons/apiserver/h2"
	"clusterctl/daemons/run"
)

// frameOf returns an encoded frame.
func frameOf(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) []byte {
	n := len(payload)
	head := binary.BigEndian.AppendUint32([]byte{byte(n >> 16), byte(n >> 8), byte(n), byte(kind), byte(flags)}, id)
	return append(head, payload...)
}

// An endless sequence of any kind of frame ends the connection before it has cost much.
// Proves S12.
//
//style:long a table of floods, with the frames that each repeats
func TestFrameFloodsEndTheConnection(t *testing.T) {
	block := func(fields ...string) []byte {
		var out bytes.Buffer
		enc := hpack.NewEncoder(&out)
		for i := 0; i < len(fields); i += 2 {
			if err := enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1],
				Sensitive: true}); err != nil {
				t.Fatal(err)
			}
		}
		return out.Bytes()
	}
	post := block(":method", "POST", ":scheme", "https", ":authority", "x", ":path", "/")
	open := frameOf(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, post...)
	closed := append(frameOf(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, post...),
		frameOf(http2.FrameRSTStream, 0, 1, 0, 0, 0, 8)...)
	unfinished := frameOf(http2.FrameHeaders, 0, 1, post...)
	setting := func(id http2.SettingID, value uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(id)), value)
	}
	var many []byte
	for i := range 2000 {
		many = append(many, setting(http2.SettingID(100+i), 1)...)
	}
	for name, tt := range map[string]struct {
		first, again []byte
		code         http2.ErrCode
	}{
		"SETTINGS that change windows": {open,
			frameOf(http2.FrameSettings, 0, 0, setting(http2.SettingInitialWindowSize, 70000)...),
			http2.ErrCodeEnhanceYourCalm},
		"SETTINGS with thousands of entries": {nil, frameOf(http2.FrameSettings, 0, 0, many...),
			http2.ErrCodeEnhanceYourCalm},
		"SETTINGS that acknowledge": {nil, frameOf(http2.FrameSettings, http2.FlagSettingsAck, 0),
			http2.ErrCodeEnhanceYourCalm},
		"PING": {nil, frameOf(http2.FramePing, 0, 0, make([]byte, 8)...),
			http2.ErrCodeEnhanceYourCalm},
		"PING that answers": {nil, frameOf(http2.FramePing, http2.FlagPingAck, 0, make([]byte, 8)...),
			http2.ErrCodeEnhanceYourCalm},
		"PRIORITY": {nil, frameOf(http2.FramePriority, 0, 3, 0, 0, 0, 0, 1),
			http2.ErrCodeEnhanceYourCalm},
		"WINDOW_UPDATE of the connection": {nil, frameOf(http2.FrameWindowUpdate, 0, 0, 0, 0, 0, 1),
			http2.ErrCodeEnhanceYourCalm},
		"WINDOW_UPDATE of a stream": {open, frameOf(http2.FrameWindowUpdate, 0, 1, 0, 0, 0, 1),
			http2.ErrCodeEnhanceYourCalm},
		"WINDOW_UPDATE of a closed stream": {closed, frameOf(http2.FrameWindowUpdate, 0, 1, 0, 0, 0, 1),
			http2.ErrCodeEnhanceYourCalm},
		"RST_STREAM of a closed stream": {closed, frameOf(http2.FrameRSTStream, 0, 1, 0, 0, 0, 8),
			http2.ErrCodeEnhanceYourCalm},
		"DATA without data": {open, frameOf(http2.FrameData, 0, 1), http2.ErrCodeEnhanceYourCalm},
		"DATA that is padding": {open,
			frameOf(http2.FrameData, http2.FlagDataPadded, 1, append([]byte{20}, make([]byte, 20)...)...),
			http2.ErrCodeEnhanceYourCalm},
		"CONTINUATION without end": {unfinished, frameOf(http2.FrameContinuation, 0, 1),
			http2.ErrCodeEnhanceYourCalm},
		"CONTINUATION that is large": {unfinished,
			frameOf(http2.FrameContinuation, 0, 1, block("x", strings.Repeat("y", 4000))...), http2.ErrCodeProtocol},
		"frames of a kind that nobody knows": {nil, frameOf(0x77, 0, 0, make([]byte, 100)...),
			http2.ErrCodeEnhanceYourCalm},
		"GOAWAY": {open, frameOf(http2.FrameGoAway, 0, 0, make([]byte, 8)...), http2.ErrCodeEnhanceYourCalm},
		"PUSH_PROMISE": {nil, frameOf(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1,
			append([]byte{0, 0, 0, 2}, post...)...), http2.ErrCodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			address, config, _ := serve(t, &h2.Server{}, func(_ http.ResponseWriter, r *http.Request) {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			})
			defer close(release)
			c := dialRaw(t, address, config)
			go func() {
				if _, err := c.conn.Write(tt.first); err != nil {
					return
				}
				flood := bytes.Repeat(tt.again, max(1, 64<<10/len(tt.again)))
				for sent := 0; sent < 64<<20; sent += len(flood) {
					if _, err := c.conn.Write(flood); err != nil {
						return // the connection was closed
					}
				}
			}()
			c.readUntilGoAway(tt.code)
		})
	}
}

// readUntilGoAway reads frames until GOAWAY with a code. A reset connection counts as well, because GOAWAY is lost if
// the client is still sending.
func (c *rawClient) readUntilGoAway(code http2.ErrCode) {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		var lost *net.OpError
		switch {
		case errors.As(err, &lost) && !lost.Timeout(), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return
		case err != nil:
			c.t.Fatal(err)
		}
		if away, ok := f.(*http2.GoAwayFrame); ok && away.ErrCode != http2.ErrCodeNo {
			if away.ErrCode != code {
				c.t.Fatalf("goodbye with %v, expected %v", away.ErrCode, code)
			}
			return
		}
	}
}

func heapSize() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A body uses the memory of what has arrived, not of what was announced.
// Proves S12.
func TestMissingBodiesTakeLittleMemory(t *testing.T) {
	start, release := make(chan struct{}, 250), make(chan struct{})
	address, config, _ := serve(t, &h2.Server{}, func(_ http.ResponseWriter, r *http.Request) {
		start <- struct{}{}
		<-release
	})
	c := dialRaw(t, address, config)
	before := heapSize()
	for i := range uint32(250) {
		c.begin(2*i+1, http.MethodPost, false, "content-length", "3000000")
		if err := c.WriteData(2*i+1, false, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for range 250 {
		<-start
	}
	taken := heapSize() - before
	close(release)
	if taken > 20<<20 {
		t.Errorf("%d MiB were taken for 250 bytes", taken>>20)
	}
}

// serveUnidentified serves connections that count as unidentified until a request has the header "name".
func serveUnidentified(t *testing.T, h http.HandlerFunc) (address string, config *tls.Config) {
	t.Helper()
	address, config, _ = serveOn(
		t,
		new(run.UnidentifiedLimiter).Listen,
		&h2.Server{MaxHeaderBytes: 1 << 20},
		func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("name") != "" {
				run.ConnOf(r.Context()).Identify()
			}
			h(w, r)
		},
	)
	return address, config
}

func TestUnidentifiedClientsHaveSmallHeaderLimit(t *testing.T) {
	address, config := serveUnidentified(t, func(http.ResponseWriter, *http.Request) {})
	c := dialRaw(t, address, config)
	long := strings.Repeat("x", 100<<10)
	c.beginLong(1, "large", long[:64<<10-100]) // exceeds the limit, together with name and path
	c.readUntil("431", func(f any) bool { return isStatus(f, 1, "431") })
	c.begin(3, http.MethodGet, true, "name", "me")
	c.readUntil("an answer", func(f any) bool { return isStatus(f, 3, "200") })
	c.beginLong(5, "large", long) // more than an unidentified client may send
	c.readUntil("an answer to the identified client", func(f any) bool { return isStatus(f, 5, "200") })
}

func TestUnidentifiedClientsHaveFewStreams(t *testing.T) {
	start, release := make(chan struct{}, 250), make(chan struct{})
	address, config := serveUnidentified(t, func(http.ResponseWriter, *http.Request) {
		start <- struct{}{}
		<-release
	})
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let) // otherwise the server would wait for its handlers if the test fails
	stranger := dialRaw(t, address, config)
	for i := range uint32(33) {
		stranger.begin(2*i+1, http.MethodGet, true)
	}
	stranger.readUntil("a refusal", func(f any) bool { return isReset(f, 65, http2.ErrCodeRefusedStream) })
	for range 32 {
		<-start
	}
	client := dialRaw(t, address, config)
	for i := range uint32(250) {
		client.begin(2*i+1, http.MethodGet, true, "name", "me")
	}
	for range 250 {
		<-start
	}
	let()
}

// A connection waits only once for an unidentified client, not with every stream. While it waits nothing is read, so a
// disconnect would go unnoticed.
// Proves S12.
func TestAConnectionWaitsForAnUnidentifiedClientOnce(t *testing.T) {
	release := make(chan struct{})
	address, config := serveUnidentified(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	stranger := dialRaw(t, address, config)
	const last = 2*250 + 1
	for id := uint32(1); id <= last; id += 2 {
		stranger.begin(id, http.MethodGet, true)
	}
	// The test's connection has a deadline, which a wait of a second for each stream would far exceed.
	stranger.readUntil("the last refusal", func(f any) bool { return isReset(f, last, http2.ErrCodeRefusedStream) })
}

func TestFirstRequestOfAnIdentifiedClientMayBeLarge(t *testing.T) {
	const length = 2 << 20
	address, config := serveUnidentified(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if n != length || err != nil {
			t.Errorf("%d bytes came: %v", n, err)
		}
	})
	for _, name := range []string{"me", ""} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address,
			bytes.NewReader(make([]byte, length)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("name", name)
		answer, err := newClient(t, config).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
}

// A client that reads much sends many window updates, as Go's client sends two for every 4 KiB. That must not count as
// a flood.
// Proves S12.
func TestManyWindowUpdatesAreNoFlood(t *testing.T) {
	page := make([]byte, 16<<20)
	address, config, _ := serve(t, &h2.Server{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	transport := &http2.Transport{TLSClientConfig: config, StrictMaxConcurrentStreams: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 3 {
				answer, err := client.Get("https://" + address + "/")
				if err != nil {
					t.Error(err)
					return
				}
				n, err := io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if err != nil || n != int64(len(page)) {
					t.Errorf("%d of %d bytes, %v", n, len(page), err)
					return
				}
			}
		})
	}
	readers.Wait()
}
