package admission

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"clusterctl/daemons/api"
)

// trustBundle requires the right to attest for a signer. All readers of the signer's bundles trust their certificates.
type trustBundle struct{ authorizer api.Authorizer }

// Validate requires the verb attest on the signer.
func (p *trustBundle) Validate(ctx context.Context, a *api.Admission) error {
	b, ok := a.Object.(*certificatesv1.ClusterTrustBundle)
	if !ok || b.Spec.SignerName == "" || a.Operation != "CREATE" && a.Operation != "UPDATE" {
		return nil
	}
	// The garbage collector needs no right on signers. It changes only owners and finalizers.
	if old, ok := a.Old.(*certificatesv1.ClusterTrustBundle); ok {
		collected := b.DeepCopy()
		collected.OwnerReferences, collected.Finalizers, collected.ManagedFields = old.OwnerReferences, old.Finalizers,
			old.ManagedFields
		collected.ResourceVersion, collected.TypeMeta = old.ResourceVersion, old.TypeMeta
		if equality.Semantic.DeepEqual(collected, old) {
			return nil
		}
	}
	if !isAllowedOnSigner(ctx, p.authorizer, a, "attest", b.Spec.SignerName) {
		return forbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", b.Spec.SignerName))
	}
	return nil
}
