package apiserver_test

import (
	"context"
	"encoding/pem"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// A pod's state decides whether a budget guards it. A pod that becomes ready between this decision and its deletion is
// checked again.
func TestPodThatBecomesReadyDuringEvictionCountsAgainstTheBudget(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pods := client.CoreV1().Pods("default")
	build := func(name string, phase corev1.PodPhase, ready corev1.ConditionStatus) error {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.Status.Phase, p.Status.Conditions = phase, []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		_, err = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
		return err
	}
	var requests atomic.Int32
	var meanwhile atomic.Pointer[func() error]
	h := newWebhookServer(t, map[string]func(*admissionv1.AdmissionRequest) string{"/evict": func(
		*admissionv1.AdmissionRequest) string {
		requests.Add(1)
		if f := meanwhile.Swap(nil); f != nil {
			if err := (*f)(); err != nil {
				t.Error(err)
			}
		}
		return `"allowed":true`
	}})
	addEvictionWebhook(ctx, t, client, h)
	for name, c := range map[string]struct {
		phase   corev1.PodPhase
		healthy int32 // healthy pods, of one desired
		becomes corev1.ConditionStatus
		cause   string // cause of the refusal; empty if the pod is evicted
	}{
		"it starts and gets ready": {corev1.PodPending, 1, "True", "needs 1 healthy pods and has 1 " +
			"currently"},
		"it starts and does not get ready": {corev1.PodPending, 1, "False", ""},
		"it gets ready, not having been": {corev1.PodRunning, 1, "True", "is still being processed by the " +
			"server."},
		"it stays unready, and says so again": {corev1.PodRunning, 1, "", ""},
		"it is unready, and too few are healthy": {corev1.PodRunning, 0, "False", "needs 1 healthy pods and has 0 " +
			"currently"},
	} {
		t.Run(name, func(t *testing.T) {
			name := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			createGuardedPod(ctx, t, client, name, c.healthy)
			must(nil, build(name, c.phase, "False"))
			waitWebhook(ctx, t, client, name, &requests)
			change := func() error { return build(name, corev1.PodRunning, c.becomes) }
			if c.becomes != "" {
				meanwhile.Store(&change)
			}
			before := requests.Load()
			err := evictOnce(ctx, client, name)
			if n := requests.Load() - before; n != 1 {
				t.Errorf("the webhook is asked %d times", n)
			}
			p, getErr := pods.Get(ctx, name, metav1.GetOptions{})
			must(p, getErr)
			if evicted := p.DeletionTimestamp != nil; evicted != (c.cause == "") {
				t.Errorf("it is evicted: %v (%v)", evicted, err)
			}
			if c.cause == "" {
				must(nil, err)
				return
			}
			checkRefusal(t, err, c.cause)
		})
	}
}

// checkRefusal checks the status and the cause of a refused eviction.
func checkRefusal(t *testing.T, err error, cause string) {
	var refused *apierrors.StatusError
	if !apierrors.IsTooManyRequests(err) || !errors.As(err, &refused) || refused.ErrStatus.Details == nil ||
		len(refused.ErrStatus.Details.Causes) != 1 ||
		!strings.HasSuffix(refused.ErrStatus.Details.Causes[0].Message, cause) {
		t.Errorf("it answers %v", err)
	}
}

// evictOnce requests an eviction. A client that retries as asked would find the pod guarded.
func evictOnce(ctx context.Context, client kubernetes.Interface, name string) error {
	return client.CoreV1().
		RESTClient().
		Post().
		Namespace("default").
		Resource("pods").
		Name(name).
		SubResource("eviction").
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}}).
		MaxRetries(0).
		Do(ctx).
		Error()
}

// waitWebhook waits until evictions of a pod are sent to the webhook.
func waitWebhook(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, requests *atomic.Int32) {
	before := requests.Load()
	waitUntil(t, func() error {
		err := client.CoreV1().Pods("default").EvictV1(
			ctx,
			&policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Name: name},
				DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
			},
		)
		if requests.Load() == before {
			return errors.Join(errors.New("it is not asked"), err)
		}
		return nil
	})
}

// createGuardedPod creates a pod that is not ready, with a budget that needs one healthy pod.
func createGuardedPod(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, healthy int32) {
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"app": name}
	must(
		client.CoreV1().Pods("default").Create(
			ctx,
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name:       name,
					Labels:     labels,
					Finalizers: []string{"example.com/wait"},
				},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "c", Image: "i"}},
				},
			},
			metav1.CreateOptions{},
		),
	)
	pdbs := client.PolicyV1().PodDisruptionBudgets("default")
	b, err := pdbs.Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: labels},
		}}, metav1.CreateOptions{})
	must(b, err)
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation,
		CurrentHealthy:     healthy,
		DesiredHealthy:     1,
		ExpectedPods:       1,
	}
	must(pdbs.UpdateStatus(ctx, b, metav1.UpdateOptions{}))
}

func defaultAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
}

// addEvictionWebhook creates the default service account, and has the webhook asked about evictions.
func addEvictionWebhook(ctx context.Context, t *testing.T, client kubernetes.Interface, h *webhookServer) {
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.CoreV1().ServiceAccounts("default").Create(ctx, defaultAccount(), metav1.CreateOptions{}))
	must(
		client.AdmissionregistrationV1().
			ValidatingWebhookConfigurations().
			Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{
					Name: "evict",
				}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "evict.example.com",
					SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
					AdmissionReviewVersions: []string{"v1"},
					ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To(h.server.URL + "/evict"),
						CABundle: pem.EncodeToMemory(
							&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw},
						)},
					Rules: []admissionregistrationv1.RuleWithOperations{
						{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
							Rule: admissionregistrationv1.Rule{
								APIGroups:   []string{""},
								APIVersions: []string{"v1"},
								Resources:   []string{"pods/eviction"},
							}},
					},
				}}}, metav1.CreateOptions{}),
	)
}
