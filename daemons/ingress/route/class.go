package route

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/daemons/api/gateway"
)

// Controller is the controller name in the IngressClasses of this proxy.
const Controller = gateway.IngressController

// classAnnotation is the deprecated annotation for the class name.
const classAnnotation = "kubernetes.io/ingress.class"

// isOurs reports whether an Ingress belongs to this proxy: its class has this controller, or it has no class and a
// class with this controller is the default.
func (b *Builder) isOurs(in *networkingv1.Ingress) bool {
	name := in.Annotations[classAnnotation]
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

// ClassProblem returns the problem of a class, or nil.
func ClassProblem(class *networkingv1.IngressClass) *Problem {
	if class.Spec.Controller != Controller || class.Spec.Parameters == nil {
		return nil
	}
	return &Problem{
		"UnsupportedParameters",
		fmt.Sprintf("parameters of a class are not carried out: %s %s", class.Spec.Parameters.Kind,
			class.Spec.Parameters.Name),
	}
}
