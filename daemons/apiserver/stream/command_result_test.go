package stream

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// A command has not succeeded if its runtime ends before reporting the result, because the output may be incomplete.
// Proves S08.
func TestCommandsWithoutAResultFail(t *testing.T) {
	for name, c := range map[string]struct {
		verdict string
		want    error
	}{
		"it ended well":               {`{"status":"Success"}`, nil},
		"the runtime ended meanwhile": {"", errNoResult},
	} {
		t.Run(name, func(t *testing.T) {
			kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := httpstream.Handshake(r, w, []string{protocol.StreamProtocolV4Name}); err != nil {
					t.Errorf("agree on a protocol: %v", err)
					return
				}
				streams := make(chan httpstream.Stream, 2)
				conn := spdy.NewResponseUpgrader().
					UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
						streams <- s
						return nil
					})
				if conn == nil {
					t.Error("the connection is not upgraded")
					return
				}
				for range cap(streams) {
					s := <-streams
					text := "half"
					if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
						text = c.verdict
					}
					if text != "" {
						if _, err := s.Write([]byte(text)); err != nil {
							t.Errorf("write: %v", err)
						}
					}
					// a reader that has seen the last stream end may have closed the connection already
					_ = s.Close()
				}
				<-conn.CloseChan()
			}))
			defer kubelet.Close()
			target, err := url.Parse(kubelet.URL)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := streamOverSPDY(t.Context(), target, http.DefaultTransport,
				remotecommand.StreamOptions{Stdout: &out}); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if out.String() != "half" {
				t.Errorf("its output is %q", out.String())
			}
		})
	}
}
