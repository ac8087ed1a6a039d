package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "clusterctl/tests/programs/operator/v1"
	v2 "clusterctl/tests/programs/operator/v2"
)

// maxReplicas is the maximum number of replicas of a site.
const maxReplicas = 5

func setUpController(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).For(&v2.Site{}).Owns(&appsv1.Deployment{}).Complete(&siteReconciler{
		mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("set the controller up: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(mgr,
		&v2.Site{}).WithDefaulter(siteWebhook{}).WithValidator(siteWebhook{}).Complete(); err != nil {
		return fmt.Errorf("set the webhooks of v2 up: %w", err)
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &v1.Site{}).Complete(); err != nil {
		return fmt.Errorf("set the conversion up: %w", err)
	}
	return nil
}

// siteReconciler creates a Deployment for each Site.
type siteReconciler struct{ client client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *siteReconciler) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	site := &v2.Site{}
	if err := r.client.Get(ctx, q.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, d, func() error {
		labels := map[string]string{"site": site.Name}
		d.Spec.Replicas = &site.Spec.Replicas
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		if len(d.Spec.Template.Spec.Containers) == 0 {
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "site"}}
		}
		c := &d.Spec.Template.Spec.Containers[0]
		c.Image, c.Env = site.Spec.Container.Image, []corev1.EnvVar{{Name: "TEXT", Value: site.Spec.Text}}
		return controllerutil.SetControllerReference(site, d, r.client.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("make the deployment of %s: %w", q, err)
	}
	if site.Status.Ready == d.Status.ReadyReplicas {
		return ctrl.Result{}, nil
	}
	site.Status.Ready = d.Status.ReadyReplicas
	return ctrl.Result{}, r.client.Status().Update(ctx, site)
}

// siteWebhook sets defaults of sites and refuses sites with too many replicas.
type siteWebhook struct{}

// Default implements admission.Defaulter.
func (siteWebhook) Default(_ context.Context, s *v2.Site) error {
	if s.Spec.Replicas == 0 {
		s.Spec.Replicas = 2
	}
	return nil
}

// ValidateCreate implements admission.Validator.
func (siteWebhook) ValidateCreate(_ context.Context, s *v2.Site) (admission.Warnings, error) {
	var warnings admission.Warnings
	if s.Spec.Text == "" {
		warnings = append(warnings, "a site without a text is dull")
	}
	if s.Spec.Replicas > maxReplicas {
		return warnings, fmt.Errorf("a site has at most %d replicas, %s asks for "+
			"%d", maxReplicas, s.Name, s.Spec.Replicas)
	}
	return warnings, nil
}

// ValidateUpdate implements admission.Validator.
func (j siteWebhook) ValidateUpdate(ctx context.Context, _, s *v2.Site) (admission.Warnings, error) {
	return j.ValidateCreate(ctx, s)
}

// ValidateDelete implements admission.Validator.
func (siteWebhook) ValidateDelete(context.Context, *v2.Site) (admission.Warnings, error) {
	return nil, nil
}
