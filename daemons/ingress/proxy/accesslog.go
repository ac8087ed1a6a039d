package proxy

import (
	"io"
	"strconv"
	"sync"
	"time"
)

// accessLog writes one line of JSON for each request. Lines are buffered for at most a second.
type accessLog struct {
	mu             sync.Mutex
	out            io.Writer
	lines          []byte
	isFlushPending bool
}

const (
	flushSize     = 32 << 10
	flushInterval = time.Second
)

func newAccessLog(to io.Writer) *accessLog { return &accessLog{out: to} }

// logEntry is the log record of a request.
type logEntry struct {
	client               []byte
	method, host, target []byte
	protocol             string
	status               int
	sent                 int64
	duration             time.Duration
	rule                 string // namespace/name
	service              string
	endpoint             string
}

func (l *accessLog) add(e *logEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := append(l.lines, `{"time":"`...)
	b = time.Now().UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","client":`...)
	b = appendJSON(b, e.client)
	b = append(b, `,"method":`...)
	b = appendJSON(b, e.method)
	b = append(b, `,"host":`...)
	b = appendJSON(b, e.host)
	b = append(b, `,"target":`...)
	b = appendJSON(b, e.target)
	b = append(b, `,"protocol":"`...)
	b = append(b, e.protocol...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(e.status), 10)
	b = append(b, `,"bytes":`...)
	b = strconv.AppendInt(b, e.sent, 10)
	b = append(b, `,"seconds":`...)
	b = strconv.AppendFloat(b, e.duration.Seconds(), 'f', 6, 64)
	if e.rule != "" {
		b = append(b, `,"ingress":"`+e.rule+`","service":"`+e.service+`","endpoint":"`+e.endpoint+`"`...)
	}
	l.lines = append(b, '}', '\n')
	if len(l.lines) > flushSize {
		l.write()
	} else if !l.isFlushPending {
		l.isFlushPending = true
		time.AfterFunc(flushInterval, l.flush)
	}
}

func (l *accessLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isFlushPending = false
	l.write()
}

// write writes the buffered lines. It drops them on an error, because logging must not block requests.
func (l *accessLog) write() {
	_, _ = l.out.Write(l.lines)
	l.lines = l.lines[:0]
}

const hexDigits = "0123456789abcdef"

// appendJSON appends a JSON string of arbitrary bytes. Bytes that are not printable ASCII are escaped as Latin-1
// characters.
func appendJSON(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c >= 0x7f:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
