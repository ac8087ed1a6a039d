package metrics

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"clusterctl/certs"
	"clusterctl/daemons/api"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

// cluster implements Objects with fixed objects.
type cluster struct {
	nodes []*corev1.Node
	pods  []*Pod
}

func (c *cluster) Nodes() []*corev1.Node { return c.nodes }
func (c *cluster) Node(name string) *corev1.Node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (c *cluster) podsWhere(ok func(*Pod) bool) (out []*Pod) {
	for _, p := range c.pods {
		if ok(p) {
			out = append(out, p)
		}
	}
	return out
}

func (c *cluster) Pod(namespace, name string) *Pod {
	for _, p := range c.podsWhere(func(p *Pod) bool { return p.key() == namespace+"/"+name }) {
		return p
	}
	return nil
}

func (c *cluster) Pods(namespace string) []*Pod {
	return c.podsWhere(func(p *Pod) bool { return namespace == "" || p.Namespace == namespace })
}
func (c *cluster) PodsOn(node string) []*Pod {
	return c.podsWhere(func(p *Pod) bool { return p.Node == node })
}

func node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// fakeReviewer may read paths, and pods in the namespace n only.
type fakeReviewer struct{}

func (fakeReviewer) TokenUser(context.Context, string) (api.User, bool, error) {
	return api.User{}, false, nil
}
func (fakeReviewer) IsPathAllowed(_ context.Context, u api.User, path string) (bool, error) {
	return u.Name == "reader" && strings.HasPrefix(path, "/apis"), nil
}

func (fakeReviewer) IsResourceAllowed(_ context.Context, u api.User,
	what authorizationv1.ResourceAttributes) (bool, error) {
	return u.Name == "reader" && what.Group == "metrics.k8s.io" && (what.Verb == "get" || what.Verb == "list") &&
		what.Resource == "pods" &&
		what.Namespace == "n", nil
}

// newFilledStore returns a store with complete data about node a, pod p with two containers, and pod q. It has only a
// part of pod half.
func newFilledStore(t *testing.T, c *cluster) *store {
	t.Helper()
	s := newStore(interval)
	start := time.Now().Add(-20 * time.Second)
	for i, cpu := range []string{"10", "15"} {
		came := start.Add(time.Duration(i) * 10 * time.Second)
		stamp := " " + jsonText(t, came.UnixMilli()) + "\n"
		text := "node_cpu_usage_seconds_total " + cpu + stamp + "node_memory_working_set_bytes 1048576" + stamp
		for _, one := range []string{`container="c1",namespace="n",pod="p"`, `container="c2",namespace="n",pod="p"`, `container="c",namespace="m",pod="q"`, `container="c1",namespace="n",pod="half"`} {
			text += "container_cpu_usage_seconds_total{" + one + "} " + cpu + stamp +
				"container_memory_working_set_bytes{" + one + "} 2048" + stamp
		}
		if i == 1 {
			one := `{container="c2",namespace="n",pod="half"}`
			text += "container_cpu_usage_seconds_total" + one + " 1" + stamp + "container_memory_working_set_bytes" +
				one + " 1" + stamp
		}
		a, err := parseAnswer(newScanner(), strings.NewReader(text), c.PodsOn("a"))
		if err != nil {
			t.Fatal(err)
		}
		s.record("a", a, came)
	}
	return s
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// newAuthority creates an authority and writes its certificate to a file.
func newAuthority(t *testing.T, name string) (certs.Pair, string) {
	t.Helper()
	ca, err := certs.NewCA(name, 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".crt")
	if err := os.WriteFile(file, ca.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	return ca, file
}

// newClient returns a client with a certificate from ca, or without one if ca is nil.
func newClient(t *testing.T, server *httptest.Server, ca *certs.Pair, r certs.Request) *http.Client {
	t.Helper()
	trust := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	if ca != nil {
		pair, err := certs.Issue(*ca, r, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		shown, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		trust.Certificates = []tls.Certificate{shown}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: trust}}
}

type testServer struct {
	*httptest.Server
	front, clients certs.Pair
	synced         bool
}

func startServer(t *testing.T) *testServer {
	t.Helper()
	out := &testServer{synced: true}
	var cfg config.MetricsServer
	out.front, cfg.RequestheaderClientCAFile = newAuthority(t, "front-proxy-ca")
	out.clients, cfg.ClientCAFile = newAuthority(t, "kubernetes")
	cfg.RequestheaderAllowedNames = []string{"front-proxy-client"}
	log := slog.New(slog.DiscardHandler)
	who, err := newCallers(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{nodes: []*corev1.Node{node("a"), node("b")}, pods: []*Pod{
		pod("n", "p", "1", "c1",
			"c2"), pod("n", "half", "2", "c1", "c2"), pod("m", "q", "3", "c"), pod("n", "unknown", "4", "c"),
	}}
	env := run.NewEnv(log)
	env.Health.AddReady("objects", func() error { return nil })
	s := &server{
		callers:     who,
		reviewer:    fakeReviewer{},
		view:        &objectView{c, newFilledStore(t, c)},
		isSynced:    func() bool { return out.synced },
		daemonPages: env.Guarded(true, false, fakeReviewer{}),
		log:         log,
	}
	out.Server = httptest.NewUnstartedServer(s)
	out.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	out.StartTLS()
	t.Cleanup(out.Close)
	return out
}

// send sends a request with headers given as "Name: value".
func (s *testServer) send(t *testing.T, c *http.Client, method, path string, headers ...string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Add(name, value)
	}
	answer, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

const api1 = "/apis/metrics.k8s.io/v1beta1"

func TestOnlyTheFrontProxyCanForwardUsers(t *testing.T) {
	s := startServer(t)
	master, reader := []string{
		"X-Remote-User: root",
		"X-Remote-Group: system:masters",
	}, []string{
		"X-Remote-User: reader",
	}
	anonymous, proxy := newClient(t, s.Server, nil, certs.Request{}),
		newClient(t, s.Server, &s.front, certs.FrontProxyClient())
	other := certs.FrontProxyClient()
	other.CommonName = "somebody"
	serving := certs.DaemonServer("front-proxy-client", nil)
	for _, c := range []struct {
		name    string
		client  *http.Client
		path    string
		headers []string
		code    int
	}{
		{"nobody", anonymous, api1 + "/nodes", master, 401},
		{"nobody, of a document", anonymous, api1, master, 401},
		{"an administrator himself", newClient(t, s.Server, &s.clients, certs.SuperAdmin()), api1 + "/nodes", master,
			401},
		{"a client that has the proxy's name", newClient(t, s.Server, &s.clients, certs.FrontProxyClient()), api1 +
			"/nodes",
			master, 401},
		{"another name", newClient(t, s.Server, &s.front, other), api1 + "/nodes", master, 401},
		{"a server's certificate", newClient(t, s.Server, &s.front, serving), api1 + "/nodes", master, 401},
		{"a proxy that says nobody", proxy, api1 + "/nodes", nil, 401},
		{"a proxy for an administrator", proxy, api1 + "/nodes", master, 200},
		{"a proxy for who may", proxy, api1 + "/namespaces/n/pods", reader, 200},
		{"a proxy for who may only elsewhere", proxy, api1 + "/namespaces/m/pods", reader, 403},
		{"a proxy for who may not read all", proxy, api1 + "/pods", reader, 403},
		{"a document for who may", proxy, api1, reader, 200},
		{"a document for who may not", proxy, "/openapi/v2", reader, 403},
		{"health", anonymous, "/readyz", nil, 200},
		{"metrics for nobody", anonymous, "/metrics", master, 401},
		{"metrics for the proxy", proxy, "/metrics", master, 401},
		{"metrics for an administrator", newClient(t, s.Server, &s.clients, certs.SuperAdmin()), "/metrics", nil, 200},
	} {
		if code, text := s.send(t, c.client, http.MethodGet, c.path, c.headers...); code != c.code {
			t.Errorf("%s: %d, want %d: %.300s", c.name, code, c.code, text)
		}
	}
}

func TestUsageIsServedAsAPIObjects(t *testing.T) {
	s := startServer(t)
	proxy := newClient(t, s.Server, &s.front, certs.FrontProxyClient())
	get := func(path string, into any, headers ...string) {
		t.Helper()
		code, text := s.send(t, proxy, http.MethodGet, api1+path, append(headers, "X-Remote-User: root",
			"X-Remote-Group: system:masters")...)
		if err := json.Unmarshal([]byte(text), into); err != nil || code != 200 {
			t.Fatalf("%s: %d, %v: %s", path, code, err, text)
		}
	}
	var nodes v1beta1.NodeMetricsList
	get("/nodes", &nodes)
	if len(nodes.Items) != 1 || nodes.Kind != "NodeMetricsList" || nodes.Items[0].Usage.Cpu().String() != "500m" ||
		nodes.Items[0].Usage.Memory().String() != "1Mi" ||
		nodes.Items[0].Window.Duration != 10*time.Second ||
		nodes.Items[0].Labels["kubernetes.io/hostname"] != "a" {
		t.Errorf("nodes: %+v", nodes)
	}
	var one v1beta1.PodMetrics
	get("/namespaces/n/pods/p", &one)
	if one.Kind != "PodMetrics" || one.APIVersion != "metrics.k8s.io/v1beta1" || len(one.Containers) != 2 ||
		one.Containers[1].Name != "c2" ||
		one.Containers[1].Usage.Cpu().MilliValue() != 500 || one.Containers[1].Usage.Memory().Value() != 2048 ||
		one.Window.Duration != 10*time.Second ||
		one.Timestamp.IsZero() {
		t.Errorf("one: %+v", one)
	}
	for path, want := range map[string]string{
		"/pods": "m/q n/p", "/namespaces/n/pods": "n/p", "/namespaces/none/pods": "",
		"/pods?labelSelector=app%3Dq": "m/q", "/pods?labelSelector=app%21%3Dq": "n/p",
		"/pods?fieldSelector=metadata.name%3Dp": "n/p", "/pods?fieldSelector=metadata.namespace%3Dm": "m/q",
		"/namespaces/n/pods?labelSelector=app+in+(p,half)&limit=1": "n/p",
	} {
		var pods v1beta1.PodMetricsList
		get(path, &pods)
		var names []string
		for _, p := range pods.Items {
			names = append(names, p.Namespace+"/"+p.Name)
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s: %q, want %q", path, names, want)
		}
	}
	var rows metav1.Table
	get("/namespaces/n/pods", &rows, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	if rows.Kind != "Table" || len(rows.Rows) != 1 || jsonText(t, rows.Rows[0].Cells) != `["p","1","4Ki","10s"]` ||
		len(rows.ColumnDefinitions) != 4 ||
		!strings.Contains(string(rows.Rows[0].Object.Raw), "PartialObjectMetadata") {
		t.Errorf("rows: %+v", rows)
	}
	get("/nodes?includeObject=None", &rows, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	if len(rows.Rows) != 1 || jsonText(t, rows.Rows[0].Cells) != `["a","500m","1Mi","10s"]` {
		t.Errorf("rows: %+v", rows)
	}
}

func TestMissingMetricsAreRefusedWithAReason(t *testing.T) {
	s := startServer(t)
	proxy := newClient(t, s.Server, &s.front, certs.FrontProxyClient())
	for _, c := range []struct {
		method, path, accept string
		code                 int
		message              string
	}{
		{"GET", "/nodes/none", "", 404, `nodemetrics.metrics.k8s.io \"none\" not found`},
		{"GET", "/nodes/b", "", 404, `nodemetrics.metrics.k8s.io \"b\" not found`},
		{"GET", "/namespaces/n/pods/half", "", 404, `podmetrics.metrics.k8s.io \"n/half\" not found`},
		{"GET", "/namespaces/n/pods/unknown", "", 404, `podmetrics.metrics.k8s.io \"n/unknown\" not found`},
		{"GET", "/pods?watch=true", "", 405, `watch is not supported on resources of kind \"pods.metrics.k8s.io\"`},
		{"DELETE", "/nodes/a", "", 405, `delete is not supported on resources of kind \"nodes.metrics.k8s.io\"`},
		{"POST", "/nodes", "", 405, `create is not supported`},
		{"GET", "/pods?labelSelector=a%3D%3D%3Db", "", 400, "unable to parse labelSelector"},
		{"GET", "/pods?fieldSelector=spec.nodeName%3Da", "", 400, "field label not supported: spec.nodeName"},
		{"GET", "/nodes", "application/vnd.kubernetes.protobuf", 406, "only the following media types are accepted: " +
			"application/json"},
		{"GET", "/nodes", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", 406, "NotAcceptable"},
		{"GET", "/nodes", "application/vnd.kubernetes.protobuf, */*", 200, "NodeMetricsList"},
		{"GET", "", "application/yaml", 406, "NotAcceptable"},
		{"GET", "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", 200,
			"APIResourceList"},
		{"GET", "/deployments", "", 404, "could not find the requested resource"},
		{"GET", "/namespaces/n/nodes", "", 404, "could not find the requested resource"},
		{"GET", "/namespaces/n/pods/p/log", "", 404, "could not find the requested resource"},
		{"GET", "/pods/p", "", 404, "could not find the requested resource"},
	} {
		headers := []string{"X-Remote-User: root", "X-Remote-Group: system:masters"}
		if c.accept != "" {
			headers = append(headers, "Accept: "+c.accept)
		}
		if code, text := s.send(t, proxy, c.method, api1+c.path, headers...); code != c.code ||
			!strings.Contains(text, c.message) {
			t.Errorf("%s %s (%s): %d, want %d with %s: %.300s", c.method, c.path, c.accept, code, c.code, c.message,
				text)
		}
	}
	s.synced = false
	if code, text := s.send(t, proxy, "GET", api1+"/nodes", "X-Remote-User: root", "X-Remote-Group: "+
		"system:masters"); code != 503 {
		t.Errorf("before the caches are filled: %d, %s", code, text)
	}
}

func TestDocumentsAreServed(t *testing.T) {
	for path, d := range documents {
		var root map[string]any
		if err := json.Unmarshal(d.text, &root); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, part := range strings.Split(string(d.text), `"$ref":"#/`)[1:] {
			ref, _, _ := strings.Cut(part, `"`)
			var at any = root
			for name := range strings.SplitSeq(ref, "/") {
				in, _ := at.(map[string]any)
				at = in[name]
			}
			if at == nil {
				t.Errorf("%s: nothing is at %s", path, ref)
			}
		}
	}
}
