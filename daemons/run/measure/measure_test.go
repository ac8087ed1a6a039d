package measure

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
)

func TestHistogramsAreNativeOnlyInProtobuf(t *testing.T) {
	registry := prometheus.NewRegistry()
	one := NewHistogram(prometheus.HistogramOpts{Name: "one_seconds", Help: "One.", Buckets: []float64{1, 10}})
	many := NewHistogramVec(prometheus.HistogramOpts{Name: "many_seconds", Help: "Many.", Buckets: []float64{1, 10}},
		[]string{"a"})
	registry.MustRegister(one, many)
	one.Observe(3)
	many.WithLabelValues("b").Observe(3)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	get := func(accept string) (string, []byte) {
		t.Helper()
		r, err := http.NewRequest("GET", server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.Header.Get("Content-Type"), data
	}
	kind, data := get(
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7," +
			"text/plain;version=0.0.4;q=0.2",
	)
	if !strings.HasPrefix(kind, "application/vnd.google.protobuf") {
		t.Fatalf("the answer is %s", kind)
	}
	seen := 0
	for from := bytes.NewReader(data); from.Len() > 0; seen++ {
		var family dto.MetricFamily
		if err := protodelim.UnmarshalFrom(from, &family); err != nil {
			t.Fatal(err)
		}
		h := family.Metric[0].Histogram
		if h.GetSampleCount() != 1 || len(h.Bucket) != 2 || h.Schema == nil || len(h.PositiveSpan) != 1 ||
			len(h.PositiveDelta) != 1 {
			t.Errorf("%s: %v", family.GetName(), h)
		}
	}
	if seen != 2 {
		t.Errorf("%d histograms are served", seen)
	}
	if kind, data := get("text/plain"); !strings.HasPrefix(kind, "text/plain") ||
		!strings.Contains(string(data), `one_seconds_bucket{le="10"} 1`) {
		t.Errorf("%s: %s", kind, data)
	}
}

// Histograms that are created otherwise have no native form.
func TestAllHistogramsAreCreatedByThisPackage(t *testing.T) {
	for _, root := range []string{"../..", "../../../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, "measure/measure.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "NewHistogram") {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "prometheus" {
						t.Errorf("%s uses prometheus.%s: use package measure", path, s.Sel.Name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
