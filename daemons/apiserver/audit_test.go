package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/config"
	"clusterctl/daemons/store/memory"
)

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, users: ["system:apiserver"]}
- {level: Metadata, resources: [{resources: [secrets]}], omitStages: [RequestReceived]}
- {level: Metadata, verbs: [watch]}
- {level: RequestResponse, resources: [{resources: [configmaps]}], omitStages: [RequestReceived]}
- {level: Metadata, omitStages: [RequestReceived]}
`

// startAudited starts a server with an audit policy. It returns the path of the log.
func startAudited(t *testing.T, policy string) (c *testCluster, log string) {
	t.Helper()
	s := memory.New()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	log = filepath.Join(dir, "audit.log")
	return serveCluster(t, s, func(cfg *config.APIServer) {
		cfg.AuditPolicyFile, cfg.AuditLogPath = writeFile(t, dir, "policy.yaml", []byte(policy)), log
	}), log
}

func TestAuditLogFollowsThePolicy(t *testing.T) {
	c, path := startAudited(t, auditPolicy)
	causeAuditedRequests(t, c)
	c.stop()

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("correct-horse")) || bytes.Contains(text, []byte("Y29ycmVjdC1ob3JzZ")) {
		t.Error("the log has a secret's content")
	}
	var events []auditv1.Event
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	find := func(what string, matches func(*auditv1.Event) bool) *auditv1.Event {
		t.Helper()
		for i := range events {
			if matches(&events[i]) {
				return &events[i]
			}
		}
		t.Errorf("the log has no event of %s", what)
		return &auditv1.Event{ObjectRef: &auditv1.ObjectReference{}, ResponseStatus: &metav1.Status{}}
	}
	secret := find("the secret", func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Resource == "secrets" && e.Verb == "create"
	})
	if secret.RequestObject != nil || !strings.HasPrefix(secret.ObjectRef.Name, "s-") ||
		secret.ResponseStatus.Code != 201 || secret.User.Username != "kubernetes-admin" ||
		secret.Annotations["authorization.k8s.io/decision"] != "allow" ||
		len(secret.SourceIPs) != 1 ||
		secret.UserAgent == "" {
		t.Errorf("the event of the secret is %+v", secret)
	}
	made := find("the config map", func(e *auditv1.Event) bool { return e.RequestObject != nil })
	if made.ResponseObject == nil || !strings.Contains(string(made.RequestObject.Raw), `"data":{"k":"v"}`) ||
		!strings.Contains(string(made.ResponseObject.Raw), `"uid"`) ||
		strings.Contains(string(made.ResponseObject.Raw), "managedFields") {
		t.Errorf("the event of the protobuf request is %+v", made)
	}
	missing := find("the missing object", func(e *auditv1.Event) bool {
		return e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusNotFound
	})
	if missing.ResponseStatus.Reason != metav1.StatusReasonNotFound || missing.ObjectRef.Name != "none" ||
		missing.Stage != auditv1.StageResponseComplete {
		t.Errorf("the event of the missing object is %+v", missing)
	}
	forbidden := find("the refusal", func(e *auditv1.Event) bool {
		return e.ResponseStatus != nil && e.ResponseStatus.Code == http.StatusForbidden
	})
	if forbidden.ImpersonatedUser == nil || forbidden.ImpersonatedUser.Username != "ann" ||
		forbidden.User.Username != "kubernetes-admin" ||
		forbidden.Annotations["authorization.k8s.io/decision"] != "forbid" {
		t.Errorf("the event of the refusal is %+v", forbidden)
	}
	for _, stage := range []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted,
		auditv1.StageResponseComplete} {
		find("the watch at "+string(stage),
			func(e *auditv1.Event) bool { return e.Verb == "watch" && e.Stage == stage })
	}
	find("the unauthenticated client", func(e *auditv1.Event) bool {
		return e.RequestURI == "/api" && e.ResponseStatus.Code == http.StatusUnauthorized && e.User.Username == ""
	})
}

// causeAuditedRequests sends a request for each rule of the policy.
func causeAuditedRequests(t *testing.T, c *testCluster) {
	ctx := context.Background()
	cfg := c.configFor(certs.Admin())
	client := kubernetes.NewForConfigOrDie(cfg)
	if _, err := client.CoreV1().Secrets("default").Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
			StringData: map[string]string{"word": "correct-horse"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binary := rest.CopyConfig(cfg)
	binary.ContentType = "application/vnd.kubernetes.protobuf"
	if _, err := kubernetes.NewForConfigOrDie(binary).CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"k": "v"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(ctx, "none", metav1.GetOptions{}); err == nil {
		t.Fatal("a config map exists that no request created")
	}
	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{UserName: "ann"}
	if _, err := kubernetes.NewForConfigOrDie(as).CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Fatal("ann may list nodes")
	}
	w, err := client.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	if err := c.checkHealth("/api"); err == nil {
		t.Fatal("an unauthenticated client may read /api")
	}
}
