package apiserver_test

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

//go:embed testdata/metrics.txt
var wantedMetrics string

// family is a metric with all its series.
type family struct {
	kind   string
	series []sample
}

// sample is one line of a scrape.
type sample struct {
	labels map[string]string
	value  float64
}

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// scrapeMetrics returns the metrics at /metrics. Each line of a histogram is under a name of its own.
func scrapeMetrics(t *testing.T, cfg *rest.Config) map[string]*family {
	t.Helper()
	_, text := sendRequest(t, cfg, "GET", "/metrics", "")
	families := map[string]*family{}
	of := func(name string) *family {
		if families[name] == nil {
			families[name] = &family{}
		}
		return families[name]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			of(name).kind = kind
			continue
		}
		parts := sampleLine.FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		one := sample{labels: map[string]string{}}
		one.value, _ = strconv.ParseFloat(parts[3], 64) // NaN values are not checked
		for _, pair := range labelPair.FindAllStringSubmatch(parts[2], -1) {
			one.labels[pair[1]] = pair[2]
		}
		of(parts[1]).series = append(of(parts[1]).series, one)
	}
	return families
}

// sumOf returns the sum of a metric's series with the given labels, which are pairs of name and value.
func sumOf(families map[string]*family, name string, labels ...string) (sum float64) {
	if families[name] == nil {
		return 0
	}
	if families[name].kind == "histogram" {
		name += "_count"
	}
	for _, one := range families[name].series {
		after := true
		for i := 0; i < len(labels); i += 2 {
			v, ok := one.labels[labels[i]]
			after = after && ok && v == labels[i+1]
		}
		if after {
			sum += one.value
		}
	}
	return sum
}

// causeCountedEvents causes one event of each kind that is counted.
func causeCountedEvents(t *testing.T, c *testCluster) *rest.Config {
	t.Helper()
	ctx, admin := context.Background(), c.configFor(certs.Admin())
	client := kubernetes.NewForConfigOrDie(admin)
	hooks := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		"/refuse": func(*admissionv1.AdmissionRequest) string { return `"allowed":false` },
		"/fail":   func(*admissionv1.AdmissionRequest) string { return "fail" },
	})
	createConfiguration(t, admin, validatingPath, configurationObject("ValidatingWebhookConfiguration", "hooks",
		hooks.webhookConfig("ignored.example.com", "/fail", `,"failurePolicy":"Ignore"`),
		hooks.webhookConfig("refuses.example.com", "/refuse", "")))
	w, err := client.CoreV1().Secrets("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	if _, err := client.CoreV1().Secrets("default").Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-w.ResultChan()
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{}); err == nil {
		t.Fatal("an object that a webhook refuses is created")
	}
	if _, err := client.CoreV1().ConfigMaps("kube-system").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}},
		metav1.CreateOptions{DryRun: []string{"All"}}); err == nil {
		t.Fatal("a dry run is not refused")
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ComponentStatuses().List(ctx,
		metav1.ListOptions{}); err != nil { //nolint:staticcheck // it is deprecated: that is what is looked at
		t.Fatal(err)
	}
	if code, text := sendRequest(t, admin, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.nowhere.example.com"},"spec":{"group":"nowhere.example.com","version":"v1",
		"groupPriorityMinimum":1,"versionPriority":1,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"nowhere"}}}`); code != http.StatusCreated {
		t.Fatal(code, text)
	}
	rejectCrowd(ctx, t, client)
	crowd, ann := c.configFor(certs.Request{CommonName: "crowd"}), c.configFor(certs.Request{CommonName: "ann"})
	waitUntil(t, func() error {
		if code, _ := getResponse(t, crowd, "/version"); code != http.StatusTooManyRequests {
			return fmt.Errorf("the crowd is answered %d", code)
		}
		return nil
	})
	getResponse(t, ann, "/api/v1/namespaces/default") // could wait in a queue, but does not
	getResponse(t, ann, "/livez")                     // of an exempt level
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("this is no TLS\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_, _ = bufio.NewReader(conn).ReadByte() // until the server has closed the connection
	_ = conn.Close()                        // nothing more is sent
	return admin
}

// rejectCrowd has all requests of the user crowd rejected.
func rejectCrowd(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	none := int32(0)
	if _, err := client.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx,
		&flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "never"},
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: &none, BorrowingLimitPercent: &none,
					LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
				}},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.FlowcontrolV1().FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "crowd"},
		Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 50,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "never"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser,
					User: &flowcontrolv1.UserSubject{Name: "crowd"}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"},
					NonResourceURLs: []string{"*"}}},
			}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The metrics that dashboards and alerts select have upstream's names, types, labels and buckets.
// Proves S33.
func TestMetricsHaveUpstreamsNamesLabelsAndBuckets(t *testing.T) {
	c, _ := startAudited(t, auditEverything)
	admin := causeCountedEvents(t, c)
	var families map[string]*family
	waitUntil(t, func() error {
		families = scrapeMetrics(t, admin)
		for _, late := range []string{"aggregator_unavailable_apiservice_total",
			"apiserver_tls_handshake_errors_total"} {
			if sumOf(families, late) == 0 {
				return fmt.Errorf("nothing is counted under %s", late)
			}
		}
		if families["aggregator_unavailable_apiservice"] == nil { // it is updated after the counter
			return errors.New("no APIService is reported as unavailable")
		}
		return nil
	})
	checkFamilies(t, families)
	for _, current := range []struct {
		name   string
		labels []string
	}{
		{"apiserver_admission_controller_admission_duration_seconds",
			[]string{"name", "NamespaceLifecycle", "operation", "CREATE", "rejected", "false", "type", "admit"}},
		{"apiserver_admission_controller_admission_duration_seconds",
			[]string{"name", "ResourceQuota", "operation", "CREATE", "rejected", "false", "type", "validate"}},
		{"apiserver_admission_controller_admission_duration_seconds",
			[]string{"name", "ValidatingAdmissionWebhook", "operation", "CREATE", "rejected", "true", "type",
				"validate"}},
		{"apiserver_flowcontrol_rejected_requests_total",
			[]string{"flow_schema", "crowd", "priority_level", "never", "reason", "concurrency-limit"}},
		{"apiserver_flowcontrol_dispatched_requests_total",
			[]string{"flow_schema", "probes", "priority_level", "exempt"}},
		{"apiserver_flowcontrol_request_execution_seconds",
			[]string{"flow_schema", "global-default", "priority_level", "global-default", "type", "regular"}},
		{"apiserver_flowcontrol_request_wait_duration_seconds",
			[]string{"flow_schema", "global-default", "priority_level", "global-default", "execute", "true"}},
		{"apiserver_flowcontrol_request_execution_seconds", []string{"type", "watch"}},
		{"apiserver_registered_watchers", []string{"group", "", "version", "v1", "kind", "Secret"}},
		{"apiserver_watch_events_total", []string{"group", "", "version", "v1", "resource", "secrets"}},
		{"apiserver_watch_cache_consistent_read_total",
			[]string{"group", "", "resource", "namespaces", "success", "true", "fallback", "false"}},
		{"apiserver_cache_list_returned_objects_total", []string{"group", "", "resource", "namespaces"}},
		{"etcd_requests_total", []string{"operation", "create", "group", "", "resource", "namespaces"}},
		{"apiserver_requested_deprecated_apis",
			[]string{"group", "", "version", "v1", "resource", "componentstatuses"}},
	} {
		if sumOf(families, current.name, current.labels...) == 0 {
			t.Errorf("%s with %v is 0", current.name, current.labels)
		}
	}
}

// checkFamilies compares types, labels and buckets with wantedMetrics.
func checkFamilies(t *testing.T, families map[string]*family) {
	for line := range strings.Lines(wantedMetrics) {
		row := strings.Fields(line)
		if len(row) == 0 || row[0] == "#" {
			continue
		}
		family := families[row[0]]
		lines := family
		if row[1] == "histogram" {
			lines = families[row[0]+"_bucket"]
		}
		if family == nil || lines == nil {
			t.Errorf("%s is missing", row[0])
			continue
		}
		if family.kind != row[1] {
			t.Errorf("%s is a %s, and upstream's a %s", row[0], family.kind, row[1])
		}
		var bounds []string
		first := lines.series[0].labels
		for _, one := range lines.series {
			le := one.labels["le"]
			delete(one.labels, "le")
			if maps.Equal(one.labels, first) && le != "+Inf" {
				bounds = append(bounds, le)
			}
		}
		labels := strings.Join(slices.Sorted(maps.Keys(first)), ",")
		if labels == "" {
			labels = "-"
		}
		if labels != row[2] {
			t.Errorf("%s has the labels %s, and upstream's %s", row[0], labels, row[2])
		}
		if got := strings.Join(bounds, ","); row[1] == "histogram" && got != row[3] {
			t.Errorf("%s has the buckets %s, and upstream's %s", row[0], got, row[3])
		}
	}
}

// The time that webhooks take does not count against the server.
// Proves S33.
func TestServiceLevelsExcludeWebhookTime(t *testing.T) {
	const takes = 50 * time.Millisecond
	s := memory.New()
	t.Cleanup(s.Close)
	admin := serveCluster(t, s).configFor(certs.Admin())
	hooks := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{
		// the test needs a webhook that takes time
		"/slow": func(*admissionv1.AdmissionRequest) string { time.Sleep(takes); return `"allowed":true` },
	})
	createConfiguration(t, admin, mutatingPath, configurationObject("MutatingWebhookConfiguration", "m",
		hooks.webhookConfig("slow.example.com", "/slow", "")))
	createConfiguration(t, admin, validatingPath, configurationObject("ValidatingWebhookConfiguration", "v",
		hooks.webhookConfig("slow.example.com", "/slow", "")))
	for _, query := range []string{"", "?dryRun=All"} {
		if code, text := sendRequest(t, admin, "POST", mapsPath+query,
			configMapObject("m"+strconv.Itoa(len(query)), "")); code != http.StatusCreated {
			t.Fatal(code, text)
		}
	}
	families := scrapeMetrics(t, admin)
	about := []string{"verb", "POST", "resource", "configmaps"}
	all, own := sumOf(families, "apiserver_request_duration_seconds_sum", append(about, "dry_run", "")...), sumOf(
		families,
		"apiserver_request_sli_duration_seconds_sum",
		about...)
	if all-own < 2*takes.Seconds() {
		t.Errorf("a request took %fs, of which %fs are the server's: webhooks took %s", all, own, 2*takes)
	}
	if n := sumOf(families, "apiserver_request_sli_duration_seconds", about...); n != 1 {
		t.Errorf("%f requests are counted, want the one that is no dry run", n)
	}
}

// The debugging paths beside /metrics are served to users who may read them.
// Proves S33.
func TestDebugPathsNeedAuthorization(t *testing.T) {
	c, _ := startAudited(t, auditEverything)
	admin := c.configFor(certs.SuperAdmin())
	waitUntil(t, func() error { // the server reads the cluster's levels after it is ready
		_, text := sendRequest(t, admin, "GET", "/debug/api_priority_and_fairness/dump_priority_levels", "")
		if !strings.Contains(text, "workload-low") {
			return fmt.Errorf("the priority levels are %s", text)
		}
		return nil
	})
	for path, wanted := range map[string][]string{
		"/metrics/slis": {`kubernetes_healthcheck{name="ping",type="livez"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="readyz"}`},
		"/debug/api_priority_and_fairness/dump_priority_levels": {"PriorityLevelName", "exempt",
			"workload-low"},
		"/debug/api_priority_and_fairness/dump_queues":                           {"PriorityLevelName", "Index"},
		"/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1": {"RequestIndexInQueue"},
		"/": {`"/metrics/slis"`, `"/debug/api_priority_and_fairness/dump_queues"`},
	} {
		code, text := sendRequest(t, admin, "GET", path, "")
		for _, want := range wanted {
			if code != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("%s is answered %d %s, without %s", path, code, text, want)
			}
		}
		if path == "/" {
			continue
		}
		if code, _ := sendRequest(t, c.configFor(certs.Request{CommonName: "ann"}), "GET", path,
			""); code != http.StatusForbidden {
			t.Errorf("%s is answered %d to an unauthorized user", path, code)
		}
	}
	if code, _ := sendRequest(t, admin, "GET", "/debug/api_priority_and_fairness/other",
		""); code != http.StatusNotFound {
		t.Errorf("another path is answered %d", code)
	}
}
