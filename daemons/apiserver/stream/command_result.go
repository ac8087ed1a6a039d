package stream

import (
	"errors"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// errNoResult reports that a command's streams ended before its result arrived: the kubelet, the runtime or the
// connection ended. The output may be incomplete.
var errNoResult = errors.New("the connection to the container ended before the command did")

// resultTransport creates connections to kubelets, and records whether one has reported a command's result, a message
// on the error stream. client-go takes the end of that stream without a message for success, as before version 4 of the
// protocol.
type resultTransport struct {
	httpstream.UpgradeRoundTripper
	expected, received atomic.Bool
}

// NewConnection implements httpstream.UpgradeRoundTripper.
func (v *resultTransport) NewConnection(answer *http.Response) (httpstream.Connection, error) {
	conn, err := v.UpgradeRoundTripper.NewConnection(answer)
	if err != nil {
		return nil, err
	}
	switch answer.Header.Get(httpstream.HeaderProtocolVersion) {
	case protocol.StreamProtocolV5Name, protocol.StreamProtocolV4Name:
		v.expected.Store(true)
	}
	return &resultConnection{conn, v}, nil
}

// isMissing reports whether a result was expected and did not arrive.
func (v *resultTransport) isMissing() bool { return v.expected.Load() && !v.received.Load() }

type resultConnection struct {
	httpstream.Connection
	transport *resultTransport
}

// CreateStream implements httpstream.Connection.
func (j *resultConnection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	s, err := j.Connection.CreateStream(headers)
	if err != nil || headers.Get(corev1.StreamType) != corev1.StreamTypeError {
		return s, err
	}
	return &resultStream{s, j.transport}, nil
}

// resultStream is the error stream.
type resultStream struct {
	httpstream.Stream
	transport *resultTransport
}

// Read implements httpstream.Stream.
func (s *resultStream) Read(data []byte) (int, error) {
	n, err := s.Stream.Read(data)
	if n > 0 {
		s.transport.received.Store(true)
	}
	return n, err
}
