package h2_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"clusterctl/daemons/apiserver/h2"
)

// BenchmarkServer answers small requests on one connection by this package and by net/http's server.
func BenchmarkServer(b *testing.B) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Status"}`)
	})
	own := &h2.Server{Log: slog.New(slog.DiscardHandler)}
	defer own.Close()
	for name, attach := range map[string]func(*httptest.Server){
		"own": func(s *httptest.Server) {
			own.Attach(s.Config)
			s.Listener = own.Listen(s.Listener)
		},
		"library": func(*httptest.Server) {},
	} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewUnstartedServer(answer)
			s.EnableHTTP2 = true
			attach(s)
			s.StartTLS()
			defer s.Close()
			client := s.Client()
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					a, err := client.Get(s.URL)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, a.Body)
					_ = a.Body.Close()
					if a.ProtoMajor != 2 {
						b.Errorf("the protocol is %s", a.Proto)
						return
					}
				}
			})
		})
	}
}
