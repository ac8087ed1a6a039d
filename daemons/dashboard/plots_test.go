package dashboard_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"clusterctl/daemons/dashboard"
)

func TestPlotsShowTheHistoryOfTheMetricsServer(t *testing.T) {
	const text = `{"kind":"MetricsHistory","interval":60,"series":[{"name":"cpu","unit":"cores","points":[[60,0.5]]}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"status":{"userInfo":{"username":"a"}}}`
		switch r.URL.RequestURI() {
		case "/apis/metrics.k8s.io/v1beta1/nodes?history=true", "/apis/metrics.k8s.io/v1beta1/nodes/n-1?history=true",
			"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/web-1?history=true":
			answer = text
		case "/apis/metrics.k8s.io/v1beta1/nodes/other?history=true":
			answer = `{"kind":"NodeMetrics"}`
		case "/apis/metrics.k8s.io/v1beta1/nodes/down?history=true":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, answer) // the client may be gone
	}))
	defer server.Close()
	w := &world{t: t, log: &syncBuffer{}}
	w.serve(&rest.Config{Host: server.URL}, dashboard.SignInByCommand)
	b := w.signInByCode()
	for query, want := range map[string]string{
		"scope=cluster": "[60,0.5]", "scope=node&name=n-1": "[60,0.5]",
		"scope=pod&namespace=shop&name=web-1": `"unit":"cores"`,
		"scope=node&name=other":               `"series":[],"message":"The cluster's metrics server keeps no history."`,
		"scope=node&name=down":                `"series":[],"message":"The metrics server does not answer`,
	} {
		got := b.do(http.MethodGet, "/api/metrics?"+query, "")
		if got.StatusCode != http.StatusOK || !strings.Contains(got.text, want) {
			t.Errorf("%s: %s %s", query, got.Status, got.text)
		}
	}
	for _, query := range []string{"", "scope=node", "scope=node&name=../x", "scope=pod&name=a", "scope=node&name=a/b",
		"scope=pod&namespace=a%2fb&name=c", "scope=node&name=a?b", "scope=node&name=.."} {
		if got := b.do(http.MethodGet, "/api/metrics?"+query, ""); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s %s", query, got.Status, got.text)
		}
	}
}
