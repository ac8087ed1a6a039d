package route

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/daemons/api/gateway"
)

// Controller is what an IngressClass says whose Ingresses are for this proxy.
const Controller = gateway.IngressController

// oldClass is how a class was named before there was a field.
const oldClass = "kubernetes.io/ingress.class"

// ours reports whether an Ingress is for this proxy: its class names the controller, or it names no class and one with
// this controller is the default.
func (b *Builder) ours(in *networkingv1.Ingress) bool {
	name := in.Annotations[oldClass]
	if in.Spec.IngressClassName != nil {
		name = *in.Spec.IngressClassName
	}
	if name != "" {
		class := b.classes[name]
		return class != nil && class.Spec.Controller == Controller
	}
	for _, class := range b.classes {
		if class.Spec.Controller == Controller &&
			class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			return true
		}
	}
	return false
}

// ClassProblem is what a class asks for and does not get; nil when all of it is carried out.
func ClassProblem(class *networkingv1.IngressClass) *Problem {
	if class.Spec.Controller != Controller || class.Spec.Parameters == nil {
		return nil
	}
	return &Problem{
		"UnsupportedParameters",
		fmt.Sprintf(
			"parameters of a class are not carried out: %s %s",
			class.Spec.Parameters.Kind,
			class.Spec.Parameters.Name,
		),
	}
}
