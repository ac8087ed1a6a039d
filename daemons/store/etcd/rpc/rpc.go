// Package rpc makes gRPC calls to a server over one HTTP/2 connection (RFC 9113). It supports short calls with one
// message each way, and streams of messages from the server. The calling goroutine writes its request, together with
// the data of concurrent callers, and one goroutine dispatches the responses. So a call costs a fraction of one in
// gRPC's own client, with its balancers and interceptors. Everything else is left to that client: a call fails with
// ErrNotMade if there is no connection or no room in a window, or if the server has not begun it. Messages are bytes
// here; the callers interpret them.
package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrNotMade reports that a call was not made, and can be made by other means.
var ErrNotMade = errors.New("the call was not made on this connection")

// Config configures a Client.
type Config struct {
	Endpoint    string        // URL with http or https; with another URL all calls are refused
	TLS         *tls.Config   // for https
	DialTimeout time.Duration // required
	Headers     []Header      // sent with every call

	Roots func() *x509.CertPool // the authorities for a new connection; nil means those of TLS
}

// Header is a metadata field of calls. Its name is in lower case.
type Header struct{ Name, Value string }

// Client makes calls. It connects at its first use, and again after the connection has ended. Meanwhile it refuses
// calls.
type Client struct {
	config  Config
	secure  bool
	address string
	ctx     context.Context // ends with the client
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	current *conn
	dialed  chan struct{} // closed when the connection attempt in progress has ended; nil if there is none
	failed  error         // why the last attempt failed
	closed  bool
	pause   time.Duration // after the last attempt to connect, if it failed
	next    time.Time     // when to connect again
}

// New returns a client, which is not connected yet.
func New(c Config) *Client {
	client := &Client{config: c, failed: fmt.Errorf("%q is not a URL of http or https", c.Endpoint)}
	client.ctx, client.stop = context.WithCancel(context.Background())
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		client.closed = true // the etcd client handles sockets and plain addresses
		return client
	}
	client.secure, client.address = u.Scheme == "https", u.Host
	if client.secure {
		own := &tls.Config{MinVersion: tls.VersionTLS13}
		if c.TLS != nil {
			own = c.TLS.Clone()
		}
		if own.ServerName == "" {
			own.ServerName = u.Hostname()
		}
		own.NextProtos = []string{"h2"}
		own.DynamicRecordSizingDisabled = true // calls are complete when written, so small records gain nothing
		client.config.TLS = own
	}
	return client
}

// Request is a message to the server.
type Request interface {
	// Append appends the encoded message.
	Append(to []byte) []byte
}

// Reply is a message from the server.
type Reply interface {
	// Read decodes the message. It must copy what it keeps, because it does not own the bytes.
	Read(message []byte) error
}

// Invoke makes a call. Besides ErrNotMade it returns the errors of gRPC's client. A call that fails with code
// Unavailable because its connection failed may have been done.
func (c *Client) Invoke(ctx context.Context, method string, request Request, reply Reply) error {
	conn, _, _ := c.connection()
	if conn == nil {
		return ErrNotMade
	}
	return conn.invoke(ctx, method, request, reply)
}

// Stream begins a call that the server answers with many messages, until ctx ends or the caller closes it. The caller
// may send further requests. Stream waits for a connection that is being made.
func (c *Client) Stream(ctx context.Context, method string, headers []Header, request Request) (*Stream, error) {
	return c.stream(ctx, method, headers, request, false)
}

// StreamOnce is like Stream, but sends only this request.
func (c *Client) StreamOnce(ctx context.Context, method string, request Request) (*Stream, error) {
	return c.stream(ctx, method, nil, request, true)
}

func (c *Client) stream(
	ctx context.Context,
	method string,
	headers []Header,
	request Request,
	all bool,
) (*Stream, error) {
	for {
		conn, dialed, failed := c.connection()
		if conn != nil {
			if s := conn.stream(method, headers, request, all); s != nil {
				return s, nil
			}
			if conn.isUsable() {
				return nil, status.Errorf(codes.ResourceExhausted, "the connection to %s has no room", c.address)
			}
			continue
		}
		if dialed == nil {
			return nil, status.Errorf(codes.Unavailable, "connect to %s: %v", c.config.Endpoint, failed)
		}
		select {
		case <-dialed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// connection returns the connection to use. If there is none, dialed is closed when a connection attempt in progress
// ends, and failed is why the last attempt failed.
func (c *Client) connection() (current *conn, dialed <-chan struct{}, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && c.current.isUsable() {
		return c.current, nil, nil
	}
	if c.dialed == nil && !c.closed && !time.Now().Before(c.next) {
		c.dialed = make(chan struct{})
		c.running.Go(c.dial)
	}
	return nil, c.dialed, c.failed
}

const (
	minRetry = 10 * time.Millisecond // between two attempts to connect
	maxRetry = 2 * time.Second
)

// dial makes a connection.
func (c *Client) dial() {
	made, err := c.connect()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.dialed)
	c.dialed, c.failed = nil, err
	if err != nil {
		c.pause = min(max(2*c.pause, minRetry), maxRetry)
		c.next = time.Now().Add(c.pause)
		return
	}
	c.current, c.pause = made, 0
}

func (c *Client) connect() (*conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.config.DialTimeout)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if c.secure {
		scheme = "https"
		config := c.config.TLS
		if c.config.Roots != nil {
			config = config.Clone()
			config.RootCAs = c.config.Roots()
		}
		secured := tls.Client(nc, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, nc.Close())
		}
		if got := secured.ConnectionState().NegotiatedProtocol; got != "h2" {
			return nil, errors.Join(fmt.Errorf("the server speaks %q", got), nc.Close())
		}
		nc = secured
	}
	made := newConn(nc, scheme, c.address, c.config.Headers)
	if err := made.sendPreface(ctx); err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	forget := context.AfterFunc(c.ctx, func() { made.fail(errClosed) })
	c.running.Go(func() {
		made.readFrames()
		forget()
	})
	c.running.Go(made.keepAlive)
	return made, nil
}

var errClosed = errors.New("the client is closed")

// Close closes the connections, and ends the pending calls.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed, c.failed = true, errClosed
	c.mu.Unlock()
	c.stop()
	c.running.Wait()
}
