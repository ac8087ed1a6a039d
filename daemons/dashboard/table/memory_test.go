package table

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// podPages serves pods in pages like an API server, with rows as it makes them for kubectl.
func podPages(count int) Getter {
	return func(ctx context.Context, path, _ string) (*http.Response, error) {
		if strings.Contains(path, "watch=true") {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		first := 0
		if _, token, ok := strings.Cut(path, "continue="); ok {
			_, _ = fmt.Sscan(token, &first) // the tokens are of this server
		}
		var text strings.Builder
		more := ""
		if first+pageSize < count {
			more = fmt.Sprintf(`,"continue":"%d"`, first+pageSize)
		}
		fmt.Fprintf(&text, `{"kind":"Table","metadata":{"resourceVersion":"5"%s},"columnDefinitions":[`+
			`{"name":"Name","type":"string"},{"name":"Ready","type":"string"},{"name":"Status","type":"string"},`+
			`{"name":"Restarts","type":"string"},{"name":"Age","type":"string"}],"rows":[`, more)
		for i := first; i < min(first+pageSize, count); i++ {
			if i > first {
				text.WriteByte(',')
			}
			name := fmt.Sprintf("web-%d-7d9c5b8f6d-%05d", i/100, i)
			fmt.Fprintf(&text, `{"cells":[%q,"1/1","Running","0","5d","10.244.%d.%d","node-%d","\u003cnone\u003e",`+
				`"\u003cnone\u003e"],"object":{"metadata":{"name":%q,"namespace":"team-%d","uid":"%08d-3af1-4ad8-8bd7-`+
				`46b55640a033","resourceVersion":"%d","creationTimestamp":"2026-05-01T00:00:00Z","labels":{"app":"web-%d",`+
				`"pod-template-hash":"7d9c5b8f6d"},"managedFields":[{"manager":"x","fieldsV1":{"f:metadata":{}}}]}}}`,
				name, i>>8&255, i&255, i%5000, name, i%20, i, i, i/100)
		}
		text.WriteString("]}")
		return &http.Response{Body: io.NopCloser(strings.NewReader(text.String()))}, nil
	}
}

func heapInUse() int {
	runtime.GC()
	runtime.GC() // the second one frees what weak pointers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestFiftyThousandPodsNeedLittleMemory(t *testing.T) {
	before := heapInUse()
	pool := NewPool(podPages(50_000))
	defer pool.Wait()
	defer pool.Stop()
	feed, release, err := pool.Open(Kind{Version: "v1", Resource: "pods"})
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	view := feed.Subscribe(Query{Filter: "web", Sort: "-restarts", Limit: 100}, func() {})
	if err := feed.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err := view.Window(time.Now())
	if err != nil || w.Matched != 50_000 || len(w.Rows) != 100 {
		t.Fatalf("%d of %d rows, %v", w.Matched, w.Total, err)
	}
	used := heapInUse() - before
	runtime.KeepAlive(view)
	t.Logf("%d KiB for the table and a view", used>>10)
	if used > 26<<20 {
		t.Errorf("50,000 pods take %d MiB, more than 26 MiB", used>>20)
	}
}

// BenchmarkList lists 50,000 pods.
func BenchmarkList(b *testing.B) {
	get := podPages(50_000)
	b.ReportAllocs()
	for b.Loop() {
		f := newFeed(Kind{Version: "v1", Resource: "pods"}, get, defaultBackOff())
		if _, err := f.list(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWindow filters and sorts 50,000 pods after a change of the filter, and after a change of one pod.
func BenchmarkWindow(b *testing.B) {
	f := newFeed(Kind{Version: "v1", Resource: "pods"}, podPages(50_000), defaultBackOff())
	if _, err := f.list(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"filter", "change"} {
		b.Run(name, func(b *testing.B) {
			v := f.Subscribe(Query{Filter: "web", Sort: "age", Limit: 100}, func() {})
			n := 0
			for b.Loop() {
				n++
				if name == "filter" {
					v.Set(Query{Filter: fmt.Sprint("web ", n%10), Sort: "age", Limit: 100})
				} else if err := f.apply("MODIFIED", []*row{newRow("u", "n", "web", fmt.Sprintf(`["web",%d]`, n), nil,
					time.Unix(int64(n), 0))}); err != nil {
					b.Fatal(err)
				}
				if _, err := v.Window(time.Unix(0, 0)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
