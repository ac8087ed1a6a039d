package apiserver

import (
	"bytes"
	"log"

	"github.com/prometheus/client_golang/prometheus"
)

// countHandshakes returns a log for net/http that counts the messages about failed TLS handshakes. net/http reports
// these failures in no other way.
func countHandshakes(failed prometheus.Counter, to *log.Logger) *log.Logger {
	return log.New(handshakeLog{failed, to}, "", 0)
}

type handshakeLog struct {
	failed prometheus.Counter
	logger *log.Logger
}

// Write implements io.Writer.
func (h handshakeLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		h.failed.Inc()
	}
	h.logger.Print(string(bytes.TrimSuffix(line, []byte("\n"))))
	return len(line), nil
}
