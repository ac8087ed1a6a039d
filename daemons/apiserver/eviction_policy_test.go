package apiserver_test

import (
	"context"
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/certs"
	"clusterctl/daemons/store/memory"
)

// createDenyPolicy creates a policy that refuses certain writes by all users, and waits until it takes effect.
func createDenyPolicy(
	ctx context.Context,
	t *testing.T,
	client kubernetes.Interface,
	resource string,
	operation admissionregistrationv1.OperationType,
	refused func() error,
) {
	t.Helper()
	rule := admissionregistrationv1.NamedRuleWithOperations{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{
				operation,
			}, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
				Resources: []string{resource}}},
	}
	name := "none-" + string(operation[0]|0x20)
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}},
				Validations: []admissionregistrationv1.Validation{{Expression: "false"}}}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() error {
		if err := refused(); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("it is not refused"), err)
		}
		return nil
	})
}

// Admission plugins check an eviction before its budget is spent. They do not check the writes that follow from the
// eviction.
func TestEvictionsAreAdmittedOnce(t *testing.T) {
	s := memory.New()
	t.Cleanup(s.Close)
	c := serveCluster(t, s)
	ctx := timeoutContext(t)
	client := kubernetes.NewForConfigOrDie(c.configFor(certs.Admin()))
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	p, err := pods.Create(
		ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Finalizers: []string{"example.com/wait"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	createDenyPolicy(ctx, t, client, "pods/status", admissionregistrationv1.Update, func() error {
		_, err := pods.UpdateStatus(ctx, p.DeepCopy(), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	createDenyPolicy(ctx, t, client, "pods", admissionregistrationv1.Delete, func() error {
		return pods.Delete(ctx, "p", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	})
	if err := pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	if p, err = pods.Get(ctx, "p", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if p.DeletionTimestamp == nil || len(p.Status.Conditions) != 1 ||
		p.Status.Conditions[0].Type != corev1.DisruptionTarget {
		t.Errorf("it goes at %v, and says %v", p.DeletionTimestamp, p.Status.Conditions)
	}
	createDenyPolicy(ctx, t, client, "pods/eviction", admissionregistrationv1.Create, func() error {
		return pods.EvictV1(
			ctx,
			&policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Name: "p"},
				DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
			},
		)
	})
}
