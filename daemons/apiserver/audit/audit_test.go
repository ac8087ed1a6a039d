package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

func requestFor(verb, group, name, namespace, object string) api.Request {
	name, sub, _ := strings.Cut(name, "/")
	return api.Request{
		Verb:                 verb,
		Resource:             true,
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: name},
		Subresource:          sub,
		Namespace:            namespace,
		Name:                 object,
	}
}

func TestFirstMatchingRuleDecides(t *testing.T) {
	p, err := ParsePolicy([]byte(`
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, nonResourceURLs: ["/healthz*", /version]}
- {level: None, users: ["system:kube-proxy"], verbs: [watch]}
- {level: Metadata, resources: [{group: "", resources: [secrets, configmaps]}, {group: authentication.k8s.io}]}
- {level: RequestResponse, userGroups: [auditors], omitStages: [ResponseStarted], omitManagedFields: false}
- {level: Request, namespaces: [shop], resources: [{group: apps, resources: [deployments], resourceNames: [web]}]}
- {level: Request, resources: [{group: "", resources: [pods/*]}, {group: "*", resources: ["*/scale"]}]}
- {level: None, namespaces: [""]}
- {level: Metadata}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		user api.User
		r    api.Request
		want auditv1.Level
	}{
		"health":                {api.User{}, api.Request{Verb: "get", Path: "/healthz/etcd"}, auditv1.LevelNone},
		"not quite the version": {api.User{}, api.Request{Verb: "get", Path: "/version/"}, auditv1.LevelMetadata},
		"a proxy's watch": {api.User{Name: "system:kube-proxy"}, requestFor("watch", "", "services", "", ""),
			auditv1.LevelNone},
		"a proxy's write": {api.User{Name: "system:kube-proxy"},
			requestFor("create", "", "services", "shop", ""), auditv1.LevelMetadata},
		"a secret": {api.User{Groups: []string{"auditors"}},
			requestFor("get", "", "secrets", "shop", "a"), auditv1.LevelMetadata},
		"all of a group": {api.User{}, requestFor("create", "authentication.k8s.io", "tokenreviews", "", ""),
			auditv1.LevelMetadata},
		"a group's member": {api.User{Groups: []string{"x", "auditors"}},
			requestFor("get", "", "pods", "shop", "a"), auditv1.LevelRequestResponse},
		"the object": {api.User{}, requestFor("update", "apps", "deployments", "shop", "web"),
			auditv1.LevelRequest},
		"another object": {api.User{}, requestFor("update", "apps", "deployments", "shop", "other"),
			auditv1.LevelMetadata},
		"another namespace": {api.User{}, requestFor("update", "apps", "deployments", "else", "web"),
			auditv1.LevelMetadata},
		"its subresource": {api.User{}, requestFor("update", "apps", "deployments/status", "shop", "web"),
			auditv1.LevelMetadata},
		"any subresource of pods": {api.User{}, requestFor("create", "", "pods/exec", "shop", "a"),
			auditv1.LevelRequest},
		"a subresource everywhere": {api.User{}, requestFor("update", "apps", "deployments/scale", "else", "a"),
			auditv1.LevelRequest},
		"without a namespace": {api.User{}, requestFor("list", "", "nodes", "", ""), auditv1.LevelNone},
	} {
		if d := p.Decide(c.user, c.r); d.Level != c.want {
			t.Errorf("%s: %s, want %s", name, d.Level, c.want)
		}
	}
	d := p.Decide(api.User{Groups: []string{"auditors"}}, requestFor("get", "", "pods", "shop", "a"))
	if d.Records(auditv1.StageRequestReceived) || d.Records(auditv1.StageResponseStarted) ||
		!d.Records(auditv1.StageResponseComplete) ||
		d.OmitManagedFields {
		t.Errorf("of stages and fields it says %+v", d)
	}
}

// The default policy, for machines without one of the user's, records the important requests.
func TestDefaultPolicyRecordsImportantRequests(t *testing.T) {
	p, err := ReadPolicy("../../../provision/role/audit-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ann := api.User{Name: "ann", Groups: []string{"system:authenticated"}}
	kubelet := api.User{Name: "system:node:a", Groups: []string{"system:nodes", "system:authenticated"}}
	manager := api.User{Name: "system:kube-controller-manager"}
	for name, c := range map[string]struct {
		user api.User
		r    api.Request
		want auditv1.Level
	}{
		"a secret that is read":      {ann, requestFor("get", "", "secrets", "shop", "a"), auditv1.LevelMetadata},
		"a kubelet reading a secret": {kubelet, requestFor("get", "", "secrets", "shop", "a"), auditv1.LevelMetadata},
		"exec":                       {ann, requestFor("create", "", "pods/exec", "shop", "a"), auditv1.LevelMetadata},
		"a change": {ann, requestFor("patch", "apps", "deployments", "shop", "a"),
			auditv1.LevelMetadata},
		"a controller's change":    {manager, requestFor("create", "", "pods", "shop", "a"), auditv1.LevelMetadata},
		"a kubelet deleting a pod": {kubelet, requestFor("delete", "", "pods", "shop", "a"), auditv1.LevelMetadata},
		"a list of pods":           {ann, requestFor("list", "", "pods", "", ""), auditv1.LevelNone},
		"a controller's watch":     {manager, requestFor("watch", "", "secrets", "", ""), auditv1.LevelNone},
		"a kubelet's status":       {kubelet, requestFor("patch", "", "nodes/status", "", "a"), auditv1.LevelNone},
		"a lease": {kubelet,
			requestFor("update", "coordination.k8s.io", "leases", "kube-node-lease", "a"), auditv1.LevelNone},
		"health": {api.User{}, api.Request{Verb: "get", Path: "/readyz/etcd"},
			auditv1.LevelNone},
		"a path that is not documented": {ann, api.Request{Verb: "get", Path: "/debug/pprof/heap"}, auditv1.LevelNone},
		"what changes something there":  {ann, api.Request{Verb: "post", Path: "/debug/flags"}, auditv1.LevelMetadata},
	} {
		if d := p.Decide(c.user, c.r); d.Level != c.want {
			t.Errorf("%s: %s, want %s", name, d.Level, c.want)
		}
	}
}

func TestInvalidPoliciesAreRejected(t *testing.T) {
	head := "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for text, want := range map[string]string{
		"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]": "not a Policy of audit.k8s.io/v1",
		head:                            "rules are missing",
		head + "rules: [{level: Most}]": `there is no level "Most"`,
		head + "rules: [{level: None, resource: []}]":                                 "unknown field",
		head + "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]":       "not about both",
		head + "rules: [{level: None, nonResourceURLs: [a]}]":                         "must begin with /",
		head + "rules: [{level: None, nonResourceURLs: ['/a*b']}]":                    "must begin with /",
		head + "rules: [{level: None, resources: [{group: '', resourceNames: [a]}]}]": "need resources",
		head + "rules: [{level: None, resources: [{group: apps/v1}]}]":                "is not a group",
		head + "omitStages: [Last]\nrules: [{level: None}]":                           `there is no stage "Last"`,
	} {
		if _, err := ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func newEvents(n int) (list []*auditv1.Event) {
	for i := range n {
		list = append(
			list,
			&auditv1.Event{
				AuditID:    types.UID(fmt.Sprint(i)),
				Level:      auditv1.LevelMetadata,
				Stage:      auditv1.StageResponseComplete,
				RequestURI: "/" + strings.Repeat("x", 1000),
			},
		)
	}
	return list
}

func countLines(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var e auditv1.Event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Errorf("a line is no event: %v", err)
		}
	}
	return n
}

func TestLogsAreRotatedAndRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit [1]", "audit.log")
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	l := &logFile{path: path, maxSize: 10_000, maxBackups: 2, maxAge: 3 * time.Hour,
		now: func() time.Time { return now }}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(filepath.Dir(path), "audit-of-mine.log")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	backups := func() int {
		list, err := fs.Glob(os.DirFS(filepath.Dir(path)), "audit-20*.log")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for want := range 4 {
		if err := l.write(t.Context(), newEvents(8)); err != nil {
			// the limit is 10 000 bytes, so the next write begins a new file
			t.Fatal(err)
		}
		if n := countLines(t, path); n != 8 || backups() != min(want, 2) {
			t.Errorf("%d lines and %d older files, want 8 and %d", n, backups(), min(want, 2))
		}
		now = now.Add(time.Hour)
	}
	now = now.Add(24 * time.Hour)
	if err := l.write(t.Context(), newEvents(8)); err != nil {
		t.Fatal(err)
	}
	if n := backups(); n != 1 {
		t.Errorf("%d older files, want the newest alone: the others are too old", n)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log is %v, %v", info.Mode(), err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file of another program: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

const metadataPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"

func newTestAuditor(t *testing.T, change func(dir string, cfg *config.APIServer)) *Auditor {
	t.Helper()
	dir := t.TempDir()
	cfg := config.DefaultAPIServer()
	cfg.AuditPolicyFile = filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(cfg.AuditPolicyFile, []byte(metadataPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	change(dir, &cfg)
	a, err := New(cfg, run.NewEnv(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestQueuedEventsAreWrittenAtShutdown(t *testing.T) {
	path := ""
	a := newTestAuditor(t, func(dir string, cfg *config.APIServer) {
		path = filepath.Join(dir, "audit.log")
		cfg.AuditLogPath = path
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, e := range newEvents(500) {
				a.Record(e)
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := countLines(t, path); n != 4000 {
		t.Errorf("%d events are in the log, want 4000", n)
	}
}

func TestFullQueueDropsEvents(t *testing.T) {
	var text bytes.Buffer
	a := newTestAuditor(t, func(dir string,
		cfg *config.APIServer) {
		cfg.AuditLogPath = filepath.Join(dir, "audit.log")
	})
	a.sinks[0].queue = make(chan *auditv1.Event, 2)
	a.sinks[0].fullWait = time.Millisecond
	a.sinks[0].log = slog.New(slog.NewTextHandler(&text, nil))
	for _, e := range newEvents(5) { // nothing writes them
		a.Record(e)
	}
	if !strings.Contains(text.String(), "audit events are lost") || strings.Count(text.String(), "\n") != 1 {
		t.Errorf("the log says %q, want one line", text.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ended); err != nil {
		t.Error(err)
	}
}

// kubeconfigOf returns a kubeconfig that names a webhook.
func kubeconfigOf(url string) []byte {
	return []byte("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: " + url +
		"}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n")
}

// A batch that does not fill up is sent after the longest time that it may wait.
func TestPartialBatchesAreSentAfterTheirWait(t *testing.T) {
	sizes := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		sizes <- len(list.Items)
	}))
	defer server.Close()
	a := newTestAuditor(t, func(dir string, cfg *config.APIServer) {
		cfg.AuditWebhookConfigFile = filepath.Join(dir, "hook.conf")
		if err := os.WriteFile(cfg.AuditWebhookConfigFile, kubeconfigOf(server.URL), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.AuditWebhookBatchMaxSize, cfg.AuditWebhookBatchMaxWait = 10, 10*time.Millisecond
	})
	for _, e := range newEvents(3) {
		a.Record(e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	select {
	case n := <-sizes:
		if n != 3 {
			t.Errorf("it got a batch of %d events, want 3", n)
		}
	case <-time.After(30 * time.Second):
		t.Error("the webhook got nothing")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFailedBatchesAreRetried(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	refused := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if refused++; refused <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		sizes = append(sizes, len(list.Items))
	}))
	defer server.Close()
	a := newTestAuditor(t, func(dir string, cfg *config.APIServer) {
		cfg.AuditWebhookConfigFile = filepath.Join(dir, "hook.conf")
		if err := os.WriteFile(cfg.AuditWebhookConfigFile, kubeconfigOf(server.URL), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.AuditWebhookBatchMaxSize, cfg.AuditWebhookBatchMaxWait, cfg.AuditWebhookInitialBackoff = 10, time.Hour,
			time.Millisecond
	})
	for _, e := range newEvents(25) {
		a.Record(e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for start := time.Now(); ; {
		mu.Lock()
		n := len(sizes)
		mu.Unlock()
		if n == 2 {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal("the webhook got nothing")
		}
		<-time.After(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(sizes) != "[10 10 5]" {
		t.Errorf("it got batches of %v, want the last one at the end", sizes)
	}
}

// Events that a server does not accept are sent to the server that the kubeconfig then names.
// Proves S12.
func TestRetriesUseTheCurrentKubeconfig(t *testing.T) {
	busy := make(chan struct{}, 1)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case busy <- struct{}{}:
		default:
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer refuses.Close()
	got := make(chan int, 1)
	takes := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			t.Error(err)
		}
		got <- len(list.Items)
	}))
	defer takes.Close()
	var path string
	a := newTestAuditor(t, func(dir string, cfg *config.APIServer) {
		path = filepath.Join(dir, "hook.conf")
		cfg.AuditWebhookConfigFile = path
		if err := os.WriteFile(path, kubeconfigOf(refuses.URL), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.AuditWebhookBatchMaxSize, cfg.AuditWebhookInitialBackoff = 3, time.Second
	})
	for _, e := range newEvents(3) {
		a.Record(e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-busy
	if err := os.WriteFile(path, kubeconfigOf(takes.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Webhook.Reload(); err != nil {
		t.Fatal(err)
	}
	select {
	case n := <-got:
		if n != 3 {
			t.Errorf("it got %d events, want 3", n)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the other server got nothing")
	}
}
