package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/daemons/api"
)

// defaultIngressClass sets the default class on Ingresses that name none.
type defaultIngressClass struct{ objects api.Objects }

var ingressesGR = resourceName{Group: networkingv1.GroupName, Resource: "ingresses"}

// classAnnotation is the annotation that named the class before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// Admit chooses the newest class that is marked as default, if there is one.
func (p *defaultIngressClass) Admit(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", ingressesGR) {
		return nil
	}
	ingress, ok := a.Object.(*networkingv1.Ingress)
	if !ok || ingress.Spec.IngressClassName != nil || ingress.Annotations[classAnnotation] != "" {
		return nil
	}
	var best *networkingv1.IngressClass
	for _, obj := range p.objects.List(resourceName{Group: networkingv1.GroupName, Resource: "ingressclasses"}, "") {
		c, ok := obj.(*networkingv1.IngressClass)
		if !ok || c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&c.CreationTimestamp) ||
			best.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < best.Name {
			best = c
		}
	}
	if best != nil {
		name := best.Name
		ingress.Spec.IngressClassName = &name
	}
	return nil
}
