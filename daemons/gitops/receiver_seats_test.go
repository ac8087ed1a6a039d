package gitops

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestABodyNeedsAMinimumRate(t *testing.T) {
	began := time.Now()
	var last time.Duration
	d := &readDeadline{set: func(at time.Time) { last = at.Sub(began) }}
	body := &pacedBody{Reader: iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 1<<10))), began: began,
		until: d.extend}
	if _, err := io.ReadAll(body); err != nil || last < hookGrace || last > hookGrace+time.Second/8 {
		t.Errorf("one kilobyte may take %s: %v", last, err)
	}
	body.received = 1 << 20
	if _, err := body.Read(make([]byte, 1)); err != io.EOF || last != hookDeadline {
		t.Errorf("a large body may take %s: %v", last, err)
	}
	d.cut()
	after := last
	if _, err := body.Read(make([]byte, 1)); err != io.EOF || last != after || last >= hookGrace {
		t.Errorf("after it was cut, a body may take %s: %v", last, err)
	}
}
