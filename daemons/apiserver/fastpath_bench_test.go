package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// BenchmarkRead measures the processor time, of client and server, of reading one object. Most reads take the fast
// path; a query sends one through the ordinary path.
func BenchmarkRead(b *testing.B) {
	s := memory.New()
	b.Cleanup(s.Close)
	c := serveCluster(b, s)
	client, err := rest.HTTPClientFor(c.configFor(certs.Admin()))
	if err != nil {
		b.Fatal(err)
	}
	for name, query := range map[string]string{"short": "", "ordinary": "?also="} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(16)
			before := processorTime(b)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					r, err := http.NewRequestWithContext(context.Background(), http.MethodGet,
						"https://"+c.addr+"/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"+query, nil)
					if err != nil {
						b.Error(err)
						return
					}
					answer, err := client.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body) // otherwise the next request would fail
					_ = answer.Body.Close()
					if answer.StatusCode != http.StatusOK {
						b.Error(answer.Status)
						return
					}
				}
			})
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
