package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/store/memory"
)

// The body of an unauthorized request is neither awaited nor recorded, whatever the audit policy records.
// Proves S12.
func TestBodiesOfUnauthorizedRequestsAreNotRead(t *testing.T) {
	c, log := startAudited(t, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse, resources: "+
		"[{resources: [configmaps]}]}]\n")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client, err := rest.HTTPClientFor(c.configFor(certs.Request{CommonName: "nobody"}))
	if err != nil {
		t.Fatal(err)
	}
	unfinished, sender := io.Pipe()
	defer func() { _ = sender.Close() }()
	// the pipe is closed at the end of the test
	go func() { _, _ = sender.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap",`)) }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://"+c.addr+"/api/v1/namespaces/default/configmaps", unfinished)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal("it is waited for what is sent:", err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Error(answer.Status)
	}
	if answer, err = client.Post("https://"+c.addr+"/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(`{"word":"refused"}`)); err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if _, err := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin())).CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.stop()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	refused, kept := 0, 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Stage != auditv1.StageResponseComplete:
		case e.ResponseStatus.Code == http.StatusForbidden:
			refused++
			if e.RequestObject != nil {
				t.Errorf("kept of a refused request: %s", e.RequestObject.Raw)
			}
		case e.ResponseStatus.Code == http.StatusCreated && e.RequestObject != nil:
			kept++
		}
	}
	if refused != 2 || kept != 1 {
		t.Errorf("%d refused requests and %d bodies are kept", refused, kept)
	}
}

// Policies apply to users who impersonate the API server.
// Proves S12.
func TestPoliciesApplyToImpersonatedServers(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := context.Background()
	admin := c.configFor(certs.Admin())
	client := kubernetes.NewForConfigOrDie(admin)
	every := admissionregistrationv1.NamedRuleWithOperations{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{
				"*",
			}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{"configmaps"}}},
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{every}},
				Validations: []admissionregistrationv1.Validation{{Expression: "false"}}}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "none"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        "none",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	write := func(client kubernetes.Interface) error {
		_, err := client.CoreV1().
			ConfigMaps("default").
			Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{})
		return err
	}
	waitUntil(t, func() error {
		if err := write(client); err == nil {
			return io.ErrNoProgress
		}
		return nil
	})
	as := rest.CopyConfig(admin)
	as.Impersonate = rest.ImpersonationConfig{UserName: api.Server, Groups: []string{api.GroupMasters}}
	if err := write(kubernetes.NewForConfigOrDie(as)); err == nil {
		t.Error("a policy does not hold for who impersonates the server")
	}
}

// panickingQuota is a quota that panics at its second call for a ConfigMap, which holds the namespace's lock.
type panickingQuota struct{ calls atomic.Int32 }

func (*panickingQuota) AffectsQuota(a *api.Admission) bool {
	return a.Resource.Resource == "configmaps"
}
func (q *panickingQuota) Validate(_ context.Context, a *api.Admission) error {
	if q.AffectsQuota(a) && q.calls.Add(1) == 2 {
		panic("it stumbles")
	}
	return nil
}

// A write that panics releases its namespace's quota lock.
func TestPanicReleasesTheQuotaLock(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	client := kubernetes.NewForConfigOrDie(startConfig(t, s,
		func(o *apiserver.Options) { o.Admission.Quota = &panickingQuota{} }))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	write := func() error {
		_, err := client.CoreV1().
			ConfigMaps("default").
			Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{})
		return err
	}
	if err := write(); !apierrors.IsInternalError(err) {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Error(err)
	}
}
