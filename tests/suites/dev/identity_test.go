package dev

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A policy allows only one account to create pods, and only another to create replica sets. This shows that controllers
// write with their own accounts.
// Proves S12.
func TestControllersUseTheirOwnAccounts(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	policies, bindings := sharedClient.AdmissionregistrationV1().
		ValidatingAdmissionPolicies(),
		sharedClient.AdmissionregistrationV1().
			ValidatingAdmissionPolicyBindings()
	rule := func(group, resource string) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{group},
					APIVersions: []string{"v1"},
					Resources:   []string{resource},
				},
			},
		}
	}
	must[*admissionregistrationv1.ValidatingAdmissionPolicy](t)(
		policies.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
						rule("", "pods"),
						rule("apps", "replicasets"),
					},
				},
				Validations: []admissionregistrationv1.Validation{{
					Expression: "request.userInfo.username == 'system:serviceaccount:kube-system:' + (object.kind == " +
						"'Pod' ? 'replicaset-controller' : 'deployment-controller')"}},
			},
		}, metav1.CreateOptions{}),
	)
	t.Cleanup(func() { _ = policies.Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{}) })
	must[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t)(
		bindings.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: ns},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        ns,
				ValidationActions: []admissionregistrationv1.ValidationAction{"Deny"},
				MatchResources: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{corev1.LabelMetadataName: ns},
					},
				},
			},
		}, metav1.CreateOptions{}),
	)
	t.Cleanup(func() { _ = bindings.Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{}) })
	waitFor(t, "the policy", func(ctx context.Context) (bool, any) {
		_, err := sharedClient.CoreV1().
			Pods(ns).
			Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}, Spec: podSpec()},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err), err
	})
	labels, replicas := map[string]string{"app": "web"}, int32(2)
	must[*appsv1.Deployment](t)(
		sharedClient.AppsV1().
			Deployments(ns).
			Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
				Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels},
						Spec:       podSpec(),
					}}}, metav1.CreateOptions{}),
	)
	waitFor(t, "the deployment", func(ctx context.Context) (bool, any) {
		d, err := sharedClient.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return d.Status.AvailableReplicas == replicas, d.Status
	})
}

// Proves S12.
func TestControllerAccountsHaveOnlyTheirOwnRights(t *testing.T) {
	t.Parallel()
	accounts := sharedClient.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	waitFor(t, "the account", func(ctx context.Context) (bool, any) {
		_, err := accounts.Get(ctx, "namespace-controller", metav1.GetOptions{})
		return err == nil, err
	})
	if _, err := accounts.Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "deployment-controller"}},
		metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	token := must[*authenticationv1.TokenRequest](t)(accounts.CreateToken(t.Context(), "deployment-controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	as := rest.AnonymousClientConfig(restConfig)
	as.BearerToken = token.Status.Token
	deployment := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(as))
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	for what, err := range map[string]error{
		"delete a node":   deployment.CoreV1().Nodes().Delete(t.Context(), "node-1", dry),
		"delete a pod":    deployment.CoreV1().Pods("default").Delete(t.Context(), "x", dry),
		"delete a secret": deployment.CoreV1().Secrets(metav1.NamespaceSystem).Delete(t.Context(), "x", dry),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := deployment.AppsV1().ReplicaSets("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list replica sets: %v", err)
	}
}
