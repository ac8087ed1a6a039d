// Package policystatus reports in the status of ValidatingAdmissionPolicies which expressions do not fit the kinds that
// they apply to: missing fields, or types that cannot be compared. It refuses nothing. The API server evaluates the
// policies.
package policystatus

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/discovery"
)

type controller struct {
	loop.Context
	loop.Loop
	policies admissionlisters.ValidatingAdmissionPolicyLister
	checker  checker
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	policies := informers.ValidatingAdmissionPolicies(c.Informers)
	client := c.Client.Discovery()
	p := &controller{Context: c, policies: policies.Lister(), checker: checker{
		schemas: openAPIDocuments{client.RESTClient()},
		// Unknown kinds are looked up once more for each policy.
		kinds: discovery.NewMapper(client),
		log:   c.Log,
	}}
	p.Loop = loop.Loop{
		Name:    "validatingadmissionpolicy-status",
		Context: c,
		Sync:    p.sync,
		Workers: 1,
		Synced:  []cache.InformerSynced{policies.Informer().HasSynced},
	}
	c.OnChange(policies.Informer(), func(_, obj any) {
		if policy, ok := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok && !isChecked(policy) {
			p.Add(policy)
		}
	})
	return p
}

// isChecked reports whether the status is about the present spec.
func isChecked(p *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	return p.Status.TypeChecking != nil && p.Status.ObservedGeneration >= p.Generation
}

func (p *controller) sync(ctx context.Context, name string) error {
	policy, err := p.policies.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if isChecked(policy) {
		return nil
	}
	warnings, err := p.checker.warnings(policy)
	if err != nil {
		return fmt.Errorf("check the types of ValidatingAdmissionPolicy %s: %w", name, err)
	}
	updated := policy.DeepCopy()
	updated.Status.ObservedGeneration = policy.Generation
	updated.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: warnings}
	if _, err := p.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().UpdateStatus(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of ValidatingAdmissionPolicy %s: %w", name, err)
	}
	return nil
}
