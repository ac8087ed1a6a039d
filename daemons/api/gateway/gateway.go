// Package gateway holds the names that the API server and the ingress proxy share: the controllers of Ingresses and
// Gateways that the proxy implements, and the label of the Services that the proxy creates.
package gateway

const (
	// IngressController is the spec.controller of IngressClasses that the cluster's ingress proxy implements.
	IngressController = "clusterctl.local/ingress"
	// Controller is the spec.controllerName of GatewayClasses that the cluster's ingress proxy implements.
	Controller = "clusterctl.local/gateway"
	// ServiceLabel is the label of Services that the proxy creates for Gateways. Its value is the name of the Gateway.
	ServiceLabel = "clusterctl.local/gateway"
)
