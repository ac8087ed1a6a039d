package kubernetes

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/scheme"
)

// Namespaces adds the subresource finalize.
type Namespaces interface {
	WithStatus[*corev1.Namespace, *corev1.NamespaceList]
	Finalize(ctx context.Context, namespace *corev1.Namespace, opts metav1.UpdateOptions) (*corev1.Namespace, error)
}

type namespaces struct {
	objects[*corev1.Namespace, *corev1.NamespaceList]
}

func (n namespaces) Finalize(
	ctx context.Context, namespace *corev1.Namespace, opts metav1.UpdateOptions,
) (*corev1.Namespace, error) {
	into := &corev1.Namespace{}
	return into, n.update(ctx, namespace, &opts, into, "finalize")
}

// Pods adds the subresource binding.
type Pods interface {
	WithStatus[*corev1.Pod, *corev1.PodList]
	Bind(ctx context.Context, binding *corev1.Binding, opts metav1.CreateOptions) error
}

type pods struct {
	objects[*corev1.Pod, *corev1.PodList]
}

func (p pods) Bind(ctx context.Context, binding *corev1.Binding, opts metav1.CreateOptions) error {
	return p.request(p.rest.Post()).Name(binding.Name).SubResource("binding").
		VersionedParams(&opts, scheme.ParameterCodec()).Body(binding).Do(ctx).Error()
}

// ServiceAccounts adds the subresource token.
type ServiceAccounts interface {
	Objects[*corev1.ServiceAccount, *corev1.ServiceAccountList]
	CreateToken(
		ctx context.Context, account string, request *authenticationv1.TokenRequest, opts metav1.CreateOptions,
	) (*authenticationv1.TokenRequest, error)
}

type serviceAccounts struct {
	objects[*corev1.ServiceAccount, *corev1.ServiceAccountList]
}

func (s serviceAccounts) CreateToken(
	ctx context.Context, account string, request *authenticationv1.TokenRequest, opts metav1.CreateOptions,
) (*authenticationv1.TokenRequest, error) {
	into := &authenticationv1.TokenRequest{}
	return into, s.request(s.rest.Post()).Name(account).SubResource("token").
		VersionedParams(&opts, scheme.ParameterCodec()).Body(request).Do(ctx).Into(into)
}

// CertificateSigningRequests adds the subresource approval.
type CertificateSigningRequests interface {
	WithStatus[*certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequestList]
	UpdateApproval(
		ctx context.Context, name string, request *certificatesv1.CertificateSigningRequest, opts metav1.UpdateOptions,
	) (*certificatesv1.CertificateSigningRequest, error)
}

type certificateSigningRequests struct {
	objects[*certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequestList]
}

func (c certificateSigningRequests) UpdateApproval(
	ctx context.Context, _ string, request *certificatesv1.CertificateSigningRequest, opts metav1.UpdateOptions,
) (*certificatesv1.CertificateSigningRequest, error) {
	into := &certificatesv1.CertificateSigningRequest{}
	return into, c.update(ctx, request, &opts, into, "approval")
}
