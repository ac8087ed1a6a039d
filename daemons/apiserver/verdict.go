package apiserver

import (
	"errors"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// errNoVerdict reports that a command's streams ended before its result arrived: the kubelet, the runtime or the
// connection ended. The output may be incomplete.
var errNoVerdict = errors.New("the connection to the container ended before the command did")

// verdicts creates connections to kubelets, and records whether one has reported a command's result, a message on the
// error stream. client-go takes the end of that stream without a message for success, as before version 4 of the
// protocol.
type verdicts struct {
	httpstream.UpgradeRoundTripper
	due, came atomic.Bool
}

// NewConnection implements httpstream.UpgradeRoundTripper.
func (v *verdicts) NewConnection(answer *http.Response) (httpstream.Connection, error) {
	conn, err := v.UpgradeRoundTripper.NewConnection(answer)
	if err != nil {
		return nil, err
	}
	switch answer.Header.Get(httpstream.HeaderProtocolVersion) {
	case protocol.StreamProtocolV5Name, protocol.StreamProtocolV4Name:
		v.due.Store(true)
	}
	return &judged{conn, v}, nil
}

// missing reports whether a result was expected and did not arrive.
func (v *verdicts) missing() bool { return v.due.Load() && !v.came.Load() }

type judged struct {
	httpstream.Connection
	verdicts *verdicts
}

// CreateStream implements httpstream.Connection.
func (j *judged) CreateStream(headers http.Header) (httpstream.Stream, error) {
	s, err := j.Connection.CreateStream(headers)
	if err != nil || headers.Get(corev1.StreamType) != corev1.StreamTypeError {
		return s, err
	}
	return &verdict{s, j.verdicts}, nil
}

// verdict is the error stream.
type verdict struct {
	httpstream.Stream
	verdicts *verdicts
}

// Read implements httpstream.Stream.
func (s *verdict) Read(data []byte) (int, error) {
	n, err := s.Stream.Read(data)
	if n > 0 {
		s.verdicts.came.Store(true)
	}
	return n, err
}
