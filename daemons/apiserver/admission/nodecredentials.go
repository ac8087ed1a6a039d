package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

var (
	volumesGR    = resourceName{Resource: "persistentvolumes"}
	requestsGR   = resourceName{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}
	csiDriversGR = resourceName{Group: storagev1.GroupName, Resource: "csidrivers"}
)

// audienceVerb is the verb of the right with which nodes may request tokens for further audiences. The audience is the
// resource.
const audienceVerb = "request-serviceaccounts-token-audience"

// checkAudience lets a kubelet request tokens only for audiences that its pod uses. So a compromised node gets no
// tokens that other systems accept.
func (p *nodeRestriction) checkAudience(
	ctx context.Context,
	a *api.Admission,
	req *authenticationv1.TokenRequest,
	pod *corev1.Pod,
) error {
	requested := ""
	switch len(req.Spec.Audiences) {
	case 0:
	case 1:
		requested = req.Spec.Audiences[0]
	default:
		return errors.New("node may only request 0 or 1 audiences")
	}
	if p.usesAudience(pod, requested) {
		return nil
	}
	d, _, err := p.authorizer.Authorize(ctx, a.User, api.Request{
		Verb: audienceVerb, Resource: true, Namespace: a.Namespace, Name: a.Name,
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: requested},
	})
	if err == nil && d == api.Allow {
		return nil
	}
	return fmt.Errorf("audience %q not found in pod spec volume", requested)
}

// usesAudience reports whether a pod uses tokens for an audience, in a volume or through its CSI driver.
func (p *nodeRestriction) usesAudience(pod *corev1.Pod, audience string) bool {
	for _, v := range pod.Spec.Volumes {
		driver := ""
		switch {
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if t := s.ServiceAccountToken; t != nil && t.Audience == audience {
					return true
				}
			}
		case v.CSI != nil:
			driver = v.CSI.Driver
		case v.PersistentVolumeClaim != nil:
			driver = p.driverOf(pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			driver = p.driverOf(pod.Namespace, pod.Name+"-"+v.Name)
		}
		if driver == "" {
			continue
		}
		if obj, ok := p.objects.Get(csiDriversGR, "", driver); ok {
			for _, t := range obj.(*storagev1.CSIDriver).Spec.TokenRequests {
				if t.Audience == audience {
					return true
				}
			}
		}
	}
	return false
}

// driverOf returns the CSI driver of a claim's volume; empty if it has none.
func (p *nodeRestriction) driverOf(namespace, claim string) string {
	c, ok := p.objects.Get(claimsGR, namespace, claim)
	if !ok {
		return ""
	}
	v, ok := p.objects.Get(volumesGR, "", c.(*corev1.PersistentVolumeClaim).Spec.VolumeName)
	if !ok || v.(*corev1.PersistentVolume).Spec.CSI == nil {
		return ""
	}
	return v.(*corev1.PersistentVolume).Spec.CSI.Driver
}

// checkCertificateRequest lets a kubelet request certificates only for its own name. The signer checks everything else.
func (p *nodeRestriction) checkCertificateRequest(node string, a *api.Admission) error {
	r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	if s := r.Spec.SignerName; s != certificatesv1.KubeletServingSignerName &&
		s != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return errors.New("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
	}
	wanted, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("unable to parse csr: %w", err)
	}
	if name := api.NodeUserPrefix + node; wanted.Subject.CommonName != name {
		return fmt.Errorf("can only create a node CSR with CN=%s", name)
	}
	return nil
}
