package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"

	"clusterctl/kube/kubernetes"
)

// Name is the name of the daemon, and of the service by which the API server finds it.
const Name = "metrics-server"

// Host is the host name in the certificate that the API server verifies.
const Host = Name + "." + metav1.NamespaceSystem + ".svc"

const (
	apiService   = "v1beta1." + v1beta1.GroupName
	managedLabel = "app.kubernetes.io/managed-by"
	servicePort  = 443
)

var registrations = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")

// registrar registers the daemon's service for the group version, unless another metrics server is installed.
type registrar struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	port    int32
	alias   string // host for which the service is an alias; empty if it has endpoints
}

// register creates or updates the objects. It returns false if the service or the group version belongs to another
// metrics server. It does not change those.
func (r *registrar) register(ctx context.Context) (ours bool, err error) {
	service, err := r.client.CoreV1().Services(metav1.NamespaceSystem).Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		service, err = nil, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the service %s: %w", Name, err)
	}
	untyped, err := r.dynamic.Resource(registrations).Get(ctx, apiService, metav1.GetOptions{})
	var registered *apiregistrationv1.APIService
	switch {
	case err == nil:
		registered = &apiregistrationv1.APIService{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(untyped.Object, registered); err != nil {
			return false, fmt.Errorf("read the API service %s: %w", apiService, err)
		}
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("read the API service %s: %w", apiService, err)
	}
	wantedService, wanted := r.service(), r.replacement(registered)
	if isForeignService(service) || isForeign(registered) {
		return false, nil
	}
	if service == nil || !isSameService(service, wantedService) {
		patch, err := json.Marshal(wantedService)
		if err != nil {
			return false, err
		}
		if _, err := r.client.CoreV1().Services(metav1.NamespaceSystem).Patch(ctx, Name, types.ApplyPatchType, patch,
			metav1.PatchOptions{FieldManager: Name, Force: ptr.To(true)}); err != nil {
			return false, fmt.Errorf("write the service %s: %w", Name, err)
		}
	}
	if registered == nil || !isSameAPIService(registered, wanted) {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
		if err != nil {
			return false, err
		}
		delete(object, "status")
		delete(object["metadata"].(map[string]any), "creationTimestamp")
		if _, err := r.dynamic.Resource(registrations).Apply(ctx, apiService,
			&unstructured.Unstructured{Object: object},
			metav1.ApplyOptions{FieldManager: Name, Force: true}); err != nil {
			return false, fmt.Errorf("write the API service %s: %w", apiService, err)
		}
	}
	return true, nil
}

// replacement returns the API service that is to replace the registered one, which may be nil. It keeps a caBundle that
// a former release set, because API servers of that release need it. clusterctl removes it after the last of them was
// updated.
func (r *registrar) replacement(registered *apiregistrationv1.APIService) *apiregistrationv1.APIService {
	a := r.apiService()
	if registered != nil {
		a.Spec.CABundle = registered.Spec.CABundle
	}
	return a
}

// isForeignService reports whether a service belongs to another metrics server: it selects pods, or was created by
// another manager.
func isForeignService(s *corev1.Service) bool {
	return s != nil && (len(s.Spec.Selector) > 0 || s.Labels[managedLabel] != Name)
}

// isForeign reports whether the APIService belongs to another metrics server: it names another Service, or certificates
// not signed by the cluster's authority. It also belongs to another manager that declared these fields, even with the
// same values.
func isForeign(a *apiregistrationv1.APIService) bool {
	if a == nil {
		return false
	}
	return a.Labels[managedLabel] != Name || a.Spec.InsecureSkipTLSVerify ||
		a.Spec.Service == nil || a.Spec.Service.Namespace != metav1.NamespaceSystem || a.Spec.Service.Name != Name ||
		slices.ContainsFunc(a.ManagedFields, declaresServer)
}

// declaresServer reports whether a manager other than this daemon owns the fields that select the server of the group
// version.
func declaresServer(e metav1.ManagedFieldsEntry) bool {
	if e.Manager == Name || e.FieldsV1 == nil {
		return false
	}
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if json.Unmarshal(e.FieldsV1.Raw, &fields) != nil {
		return false
	}
	for _, name := range []string{"f:caBundle", "f:insecureSkipTLSVerify", "f:service"} {
		if _, ok := fields.Spec[name]; ok {
			return true
		}
	}
	return false
}

func isSameService(current, want *corev1.Service) bool {
	if current.Spec.Type != want.Spec.Type || current.Spec.ExternalName != want.Spec.ExternalName ||
		len(current.Spec.Ports) != len(want.Spec.Ports) {
		return false
	}
	for i, p := range want.Spec.Ports {
		if h := current.Spec.Ports[i]; h.Name != p.Name || h.Port != p.Port || h.TargetPort != p.TargetPort {
			return false
		}
	}
	return true
}

func isSameAPIService(current, want *apiregistrationv1.APIService) bool {
	return bytes.Equal(current.Spec.CABundle, want.Spec.CABundle) && current.Spec.Service.Port != nil &&
		*current.Spec.Service.Port == *want.Spec.Service.Port
}

var objectLabels = map[string]string{"k8s-app": Name, managedLabel: Name}

func (r *registrar) service() *corev1.Service {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: metav1.NamespaceSystem, Labels: objectLabels},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{
			{Name: "https", Port: servicePort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(r.port)},
		}},
	}
	if r.alias != "" {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: r.alias}
	}
	return s
}

// apiService returns the APIService to apply. It has no caBundle, because API servers trust the cluster's authority for
// it anyway. A caBundle would conflict with insecureSkipTLSVerify in the manifest of another metrics server.
func (r *registrar) apiService() *apiregistrationv1.APIService {
	port := int32(servicePort)
	if r.alias != "" {
		port = r.port // clients connect directly
	}
	return &apiregistrationv1.APIService{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService"},
		ObjectMeta: metav1.ObjectMeta{Name: apiService, Labels: objectLabels},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: v1beta1.GroupName, Version: v1beta1.SchemeGroupVersion.Version, GroupPriorityMinimum: 100,
			VersionPriority: 100,
			Service: &apiregistrationv1.ServiceReference{Namespace: metav1.NamespaceSystem, Name: Name,
				Port: &port},
		},
	}
}
