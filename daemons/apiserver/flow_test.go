package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// getResponse sends a request, and returns the status code and the header of the response.
func getResponse(t *testing.T, cfg *rest.Config, path string) (int, http.Header) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Get(cfg.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	return r.StatusCode, r.Header
}

// A request that gets no seat is asked to retry later. Each response names the objects that classified the request.
// Proves S12.
func TestFlowSchemasLimitRequests(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := context.Background()
	admin, ann := c.configFor(certs.Admin()), c.configFor(certs.Request{CommonName: "ann"})
	flows := kubernetes.NewForConfigOrDie(admin).FlowcontrolV1()
	checkDefaultFlows(ctx, t, admin)
	none := int32(0)
	level, err := flows.PriorityLevelConfigurations().Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "never"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &none, BorrowingLimitPercent: &none,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := flows.FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "ann"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         50,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "never"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{
					{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "ann"}},
				},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{
					{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() error { // as kubectl shows it under MISSINGPL
		exempt, err := flows.FlowSchemas().Get(ctx, "exempt", metav1.GetOptions{})
		if err == nil &&
			(len(exempt.Status.Conditions) != 1 || exempt.Status.Conditions[0].Status != flowcontrolv1.ConditionFalse) {
			err = fmt.Errorf("its status is %+v", exempt.Status)
		}
		return err
	})
	waitUntil(t, func() error {
		code, header := getResponse(t, ann, "/api")
		if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" ||
			header.Get("Content-Type") != "text/plain; charset=utf-8" ||
			header.Get("X-Kubernetes-PF-FlowSchema-UID") != string(schema.UID) ||
			header.Get("X-Kubernetes-PF-PriorityLevel-UID") != string(level.UID) {
			return fmt.Errorf("%d %v", code, header)
		}
		return nil
	})
	if code, _ := getResponse(t, admin, "/api"); code != http.StatusOK {
		t.Errorf("others get %d", code)
	}
	if err := flows.FlowSchemas().Delete(ctx, "ann", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() error {
		if code, _ := getResponse(t, ann, "/api"); code != http.StatusOK {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	_, err = flows.FlowSchemas().
		Create(ctx, &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "bad"},
			Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 1}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "only the schema named 'exempt'") ||
		!strings.Contains(err.Error(), "must reference a priority level") {
		t.Errorf("an invalid schema: %v", err)
	}
}

// checkDefaultFlows waits until responses name their classification, and counts the default objects.
func checkDefaultFlows(ctx context.Context, t *testing.T, admin *rest.Config) {
	flows := kubernetes.NewForConfigOrDie(admin).FlowcontrolV1()
	for resource, want := range map[string]int{"flowschemas": 11, "prioritylevelconfigurations": 8} {
		waitUntil(t, func() error {
			_, header := getResponse(t, admin, "/apis/flowcontrol.apiserver.k8s.io/v1/"+resource)
			if header.Get("X-Kubernetes-PF-FlowSchema-UID") == "" ||
				header.Get("X-Kubernetes-PF-PriorityLevel-UID") == "" {
				return fmt.Errorf("the response does not name its classification: %v", header)
			}
			return nil
		})
		n := 0
		if resource == "flowschemas" {
			list, err := flows.FlowSchemas().List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n = len(list.Items)
		} else {
			list, err := flows.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			n = len(list.Items)
		}
		if n < want {
			t.Errorf("a new cluster has %d %s, want %d", n, resource, want)
		}
	}
}

// Mandatory flow control objects are restored while the server runs. Changes by users stay where they are allowed.
// Proves S12.
func TestMandatoryFlowControlIsRestored(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := context.Background()
	flows := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin())).FlowcontrolV1()
	if err := flows.FlowSchemas().Delete(ctx, "catch-all", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for patch, patched := range map[string]string{
		`{"spec":{"exempt":{"nominalConcurrencyShares":7}}}`:                                                                  "exempt",
		`{"spec":{"limited":{"nominalConcurrencyShares":78}}}`:                                                                "workload-low",
		`{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"limited":{"lendablePercent":1}}}`: "workload-high",
	} {
		if _, err := flows.PriorityLevelConfigurations().Patch(ctx, patched, "application/merge-patch+json",
			[]byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(patched, err)
		}
	}
	_, err := flows.PriorityLevelConfigurations().
		Patch(ctx, "catch-all", "application/merge-patch+json", []byte(`{"spec":{"limited":{"nominalConcurrencyShares":77}}}`), metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), "spec of 'catch-all' must equal the fixed value") {
		t.Errorf("catch-all with other shares: %v", err)
	}
	waitUntil(t, func() error {
		if _, err := flows.FlowSchemas().Get(ctx, "catch-all", metav1.GetOptions{}); err != nil {
			return err
		}
		for name, want := range map[string]int32{"catch-all": 5, "workload-low": 100} {
			l, err := flows.PriorityLevelConfigurations().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got := *l.Spec.Limited.NominalConcurrencyShares; got != want {
				return fmt.Errorf("%s has %d shares, want %d", name, got, want)
			}
		}
		return nil
	})
	l, err := flows.PriorityLevelConfigurations().Get(ctx, "exempt", metav1.GetOptions{})
	if err != nil || *l.Spec.Exempt.NominalConcurrencyShares != 7 {
		t.Errorf("exempt: %v %v", l, err)
	}
	if l, err = flows.PriorityLevelConfigurations().Get(ctx, "workload-high", metav1.GetOptions{}); err != nil ||
		*l.Spec.Limited.LendablePercent != 1 {
		t.Errorf("workload-high: %v %v", l, err)
	}
}
