package metrics

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"clusterctl/kube/kubernetes/fake"
)

func TestOtherMetricsServersAreUnchanged(t *testing.T) {
	r := &registrar{port: 10261}
	for name, change := range map[string]func(*corev1.Service, *apiregistrationv1.APIService){
		"a service that leads to pods": func(s *corev1.Service, _ *apiregistrationv1.APIService) {
			s.Spec.Selector = map[string]string{"k8s-app": Name}
		},
		"a service that others made": func(s *corev1.Service, _ *apiregistrationv1.APIService) { s.Labels = nil },
		"an API service that others made": func(_ *corev1.Service, a *apiregistrationv1.APIService) {
			a.Labels = map[string]string{managedLabel: "Helm"}
		},
		"another service": func(_ *corev1.Service,
			a *apiregistrationv1.APIService) {
			a.Spec.Service.Name = "mine"
		},
		"another namespace": func(_ *corev1.Service,
			a *apiregistrationv1.APIService) {
			a.Spec.Service.Namespace = "mine"
		},
		"any certificate is good": func(_ *corev1.Service,
			a *apiregistrationv1.APIService) {
			a.Spec.InsecureSkipTLSVerify = true
		},
		"a bundle that others declare": func(_ *corev1.Service, a *apiregistrationv1.APIService) {
			a.ManagedFields = []metav1.ManagedFieldsEntry{
				{Manager: Name, FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:service":{}}}`)}},
				{Manager: "cert-manager", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:caBundle":{}}}`)}}}
		},
		"no service": func(_ *corev1.Service, a *apiregistrationv1.APIService) { a.Spec.Service = nil },
	} {
		s, a := r.service(), r.apiService()
		change(s, a)
		if !isForeignService(s) && !isForeign(a) {
			t.Errorf("%s: it is taken for ours", name)
		}
	}
	if isForeignService(nil) || isForeign(nil) || isForeignService(r.service()) || isForeign(r.apiService()) {
		t.Error("an own or missing APIService is taken for one of another program")
	}
	ranked := r.apiService()
	ranked.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl-edit", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:versionPriority":{}}}`)}},
		{Manager: "kube-apiserver", Subresource: "status", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{}}`)}},
		{Manager: "old"}}
	if isForeign(ranked) {
		t.Error("an APIService whose priority another manager changed counts as foreign")
	}
}

func TestChangedRegistrationsAreCorrected(t *testing.T) {
	r := &registrar{port: 10261}
	if !isSameService(r.service(), r.service()) || !isSameAPIService(r.apiService(), r.apiService()) {
		t.Error("the same is taken for another")
	}
	former, moved, alias := r.apiService(), &registrar{port: 1}, &registrar{port: 10261, alias: "localhost"}
	former.Spec.CABundle = []byte("ca") // as earlier releases created it
	if isSameAPIService(former, r.apiService()) || isForeign(former) || isSameService(r.service(), moved.service()) ||
		isSameService(r.service(), alias.service()) || isSameAPIService(r.apiService(), alias.apiService()) {
		t.Error("another is taken for the same")
	}
	if !isSameAPIService(former, r.replacement(former)) || len(r.replacement(nil).Spec.CABundle) > 0 {
		t.Error("API servers of a former release lose the authority that they trust")
	}
	if a := r.apiService(); a.Spec.InsecureSkipTLSVerify || len(a.Spec.CABundle) > 0 ||
		a.Name != "v1beta1.metrics.k8s.io" || a.Spec.Service.Namespace != metav1.NamespaceSystem {
		t.Errorf("%+v", a.Spec)
	}
}

// The daemon steps back from an APIService that another manager declares: it writes neither the APIService nor the
// Service, and reports that the group version is not its own.
func TestADeclaredMetricsServerIsNotWrittenOver(t *testing.T) {
	r := &registrar{port: 10261}
	declared := r.apiService()
	declared.Spec.InsecureSkipTLSVerify = true
	declared.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl-client-side-apply",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:insecureSkipTLSVerify":{}}}`)}}}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(declared)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(r.service())
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{registrations: "APIServiceList"},
		&unstructured.Unstructured{Object: object})
	r.client, r.dynamic = client, dynamic
	if ours, err := r.register(t.Context()); ours || err != nil {
		t.Errorf("the group version is the daemon's own: %t, %v", ours, err)
	}
	for _, actions := range [][]clienttesting.Action{client.Actions(), dynamic.Actions()} {
		if len(actions) == 0 {
			t.Error("nothing was read")
		}
		for _, a := range actions {
			if a.GetVerb() != "get" {
				t.Errorf("the daemon writes: %s %s", a.GetVerb(), a.GetResource().Resource)
			}
		}
	}
}
