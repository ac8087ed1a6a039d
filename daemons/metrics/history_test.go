package metrics

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
)

func usageAt(at time.Time, millis int64) Usage {
	return Usage{At: at, NanoCPUs: millis * 1e6, Memory: millis << 20}
}

func TestHistoryHasOnePointAMinuteForAnHour(t *testing.T) {
	h := newHistory(maxHistoryBytes)
	start := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	for second := 0; second < 2*3600; second += 15 {
		h.record("node/a", "", usageAt(start.Add(time.Duration(second)*time.Second), int64(second/60)))
	}
	now := start.Add(2*time.Hour - time.Second)
	points := h.find("node/a", "", now)
	if len(points) != 60 {
		t.Fatalf("%d points", len(points))
	}
	for i, p := range points {
		if want := start.Unix()/60 + 60 + int64(i); p.minute != want || p.memory != float64((60+i)<<20) ||
			p.cpu < float64(60+i)/1000-1e-6 || p.cpu > float64(60+i)/1000+1e-6 {
			t.Errorf("point %d: %+v, want minute %d", i, p, want)
		}
	}
	if got := h.find("node/a", "", now.Add(58*time.Minute)); len(got) != 2 {
		t.Errorf("58 minutes later there are %d points", len(got))
	}
	if got := h.find("node/a", "other", now); got != nil {
		t.Errorf("another pod has the points %v", got)
	}
}

func TestHistoryHasGapsWhereNothingWasMeasured(t *testing.T) {
	h := newHistory(maxHistoryBytes)
	start := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	for _, minute := range []int{0, 1, 5, 4, 70, 72} { // minute 4 arrives too late
		h.record("pod/n/p", "u", usageAt(start.Add(time.Duration(minute)*time.Minute), 1))
	}
	var got []int64
	for _, p := range h.find("pod/n/p", "u", start.Add(73*time.Minute)) {
		got = append(got, p.minute-start.Unix()/60)
	}
	if fmt.Sprint(got) != "[70 72]" {
		t.Errorf("minutes %v", got)
	}
	h.record("pod/n/p", "other", usageAt(start.Add(72*time.Minute), 1))
	if got := h.find("pod/n/p", "other", start.Add(73*time.Minute)); len(got) != 1 {
		t.Errorf("a new pod of the name has %d points", len(got))
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := newHistory(100 * seriesBytes)
	start := time.Unix(1_800_000_000, 0)
	for i := range 1000 {
		h.record(fmt.Sprintf("pod/n/%d", i), "u", usageAt(start, 1))
	}
	if n := len(h.series); n == 0 || n > 100 || h.size > h.limit {
		t.Errorf("%d series of %d bytes", n, h.size)
	}
	h.record("pod/n/new", "u", usageAt(start.Add(time.Hour), 1))
	if len(h.series) != 1 || h.size != seriesBytes+len("pod/n/new") {
		t.Errorf("an hour later there are %d series of %d bytes", len(h.series), h.size)
	}
}

// A node with a wrong clock, or in the hands of an attacker, must not remove the history of others.
func TestANodeThatReportsTheFutureChangesItsOwnHistoryOnly(t *testing.T) {
	s := newStore(time.Minute)
	start := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	for minute := range 3 {
		now := start.Add(time.Duration(minute) * time.Minute)
		for node, ahead := range map[string]time.Duration{"good": 0, "future": 100 * 365 * 24 * time.Hour,
			"past": -100 * time.Hour} {
			at := now.Add(ahead).UnixMilli()
			s.record(node, answer{node: reading{cpu: float64(minute), memory: 1, at: at, hasCPU: true, hasMem: true}},
				now)
		}
	}
	for _, node := range []string{"good", "future", "past"} {
		if got := s.history.find(nodeKey(node), "", start.Add(2*time.Minute)); len(got) != 2 {
			t.Errorf("%s has %d points", node, len(got))
		}
	}
}

func TestHistoryOfTheClusterIsTheSumOfItsNodes(t *testing.T) {
	h := newHistory(maxHistoryBytes)
	start := time.Unix(1_800_000_000, 0).Truncate(time.Minute)
	for minute := range 3 {
		at := start.Add(time.Duration(minute) * time.Minute)
		h.record(nodeKey("a"), "", usageAt(at, 1000))
		h.record(nodeKey("b"), "", usageAt(at, 500))
		h.record(nodeKey("gone"), "", usageAt(at, 500))
	}
	got := h.sum([]string{"a", "b", "new"}, start.Add(2*time.Minute))
	if len(got) != 2 || got[0].cpu != 1.5 || got[0].memory != 1500<<20 || got[1].minute != start.Unix()/60+1 {
		t.Errorf("%+v", got)
	}
}

func TestHistoryHasTheAccessControlOfTheUsage(t *testing.T) {
	s := startServer(t)
	proxy := newClient(t, s.Server, &s.front, certs.FrontProxyClient())
	master := []string{"X-Remote-User: root", "X-Remote-Group: system:masters"}
	reader := []string{"X-Remote-User: reader"}
	for _, c := range []struct {
		path    string
		headers []string
		code    int
		text    string
	}{
		{"/namespaces/n/pods/p?history=true", reader, 200, `"kind":"MetricsHistory"`},
		{"/namespaces/n/pods/p?history=1", reader, 200, `,1]]`}, // two containers with half a core each
		{"/namespaces/n/pods/half?history=true", reader, 200, `"points":[]`},
		{"/namespaces/n/pods/p?history=false", reader, 200, `"kind":"PodMetrics"`},
		{"/namespaces/m/pods/q?history=true", reader, 403, "cannot get"},
		{"/nodes?history=true", reader, 403, "cannot list"},
		{"/nodes/a?history=true", reader, 403, "cannot get"},
		{"/nodes/a?history=true", master, 200, `,0.5]]`},
		{"/nodes?history=true", master, 200, `"interval":60`},
		{"/nodes/none?history=true", master, 404, "not found"},
		{"/namespaces/n/pods/none?history=true", master, 404, "not found"},
		{"/namespaces/n/pods?history=true", master, 400, "one pod"},
	} {
		code, text := s.send(t, proxy, http.MethodGet, api1+c.path, c.headers...)
		if code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s, want %d and %s", c.path, code, text, c.code, c.text)
		}
	}
	anonymous := newClient(t, s.Server, nil, certs.Request{})
	if code, _ := s.send(t, anonymous, http.MethodGet, api1+"/nodes?history=true", master...); code != 401 {
		t.Errorf("without the front proxy's certificate: %d", code)
	}
}
