package h2

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Headers are encoded as literals without indexing (RFC 7541, 6.2.2), with names from the static table where it has
// them. This needs no state and little computation.

// staticIndexes maps header names to their indexes in HPACK's static table.
var staticIndexes = map[string]byte{
	"cache-control": 24, "content-encoding": 26, "content-length": 28, "content-type": 31, "date": 33, "etag": 34,
	"location": 46, "retry-after": 53, "vary": 59, "www-authenticate": 61,
}

func appendStatus(to []byte, code int) []byte {
	if code == http.StatusOK {
		return append(to, 0x88)
	}
	return strconv.AppendInt(append(to, 0x08, 3), int64(code), 10)
}

// appendHeader appends the headers of a response. A provisional response leaves out Content-Length, which belongs to
// the final one.
func appendHeader(to []byte, header http.Header, provisional bool) []byte {
	var trailers []string
	for _, list := range header["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			trailers = append(trailers, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	for key, values := range header {
		switch key {
		case "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade":
			continue // connection-specific headers are forbidden in HTTP/2
		case "Content-Length":
			if provisional {
				continue
			}
		}
		if strings.HasPrefix(key, http.TrailerPrefix) || slices.Contains(trailers, key) {
			continue
		}
		for _, value := range values {
			to = appendField(to, lower(key), value)
		}
	}
	return to
}

var lowerNames = func() map[string]string {
	keys := map[string]string{}
	for _, key := range []string{"Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type",
		"Date", "Etag", "Location", "Retry-After", "Vary", "Warning",
		"X-Content-Type-Options", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"} {
		keys[key] = strings.ToLower(key)
	}
	return keys
}()

func lower(key string) string {
	if name, ok := lowerNames[key]; ok {
		return name
	}
	return strings.ToLower(key)
}

// appendField appends a header field. It leaves out a field with an invalid name.
func appendField(to []byte, name, value string) []byte {
	number := staticIndexes[name]
	switch {
	case number >= 15:
		to = append(to, 0x0f, number-15)
	case !httpguts.ValidHeaderFieldName(name):
		return to
	default:
		to = appendString(append(to, 0), name)
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		value = ""
	}
	return appendString(to, value)
}

// appendString appends a string with its length as an integer with a 7-bit prefix (RFC 7541, 5.1).
func appendString(to []byte, s string) []byte {
	n := len(s)
	if n < 0x7f {
		return append(append(to, byte(n)), s...)
	}
	to = append(to, 0x7f)
	for n -= 0x7f; n >= 0x80; n >>= 7 {
		to = append(to, byte(n)|0x80)
	}
	return append(append(to, byte(n)), s...)
}

type dateStamp struct {
	second int64
	text   string
}

var latestDate atomic.Pointer[dateStamp]

// httpDate returns the current time in the format of the Date header.
func httpDate() string {
	t := time.Now()
	if s := latestDate.Load(); s != nil && s.second == t.Unix() {
		return s.text
	}
	text := t.UTC().Format(http.TimeFormat)
	latestDate.Store(&dateStamp{t.Unix(), text})
	return text
}
