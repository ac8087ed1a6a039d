// Package gateway names what the API server and the ingress proxy have to agree on: for which Ingresses and Gateways the proxy
// is, and which Services it makes for them.
package gateway

const (
	// IngressController is what an IngressClass says whose Ingresses are for the cluster's ingress proxy.
	IngressController = "clusterctl.local/ingress"
	// Controller is what a GatewayClass says whose Gateways are for the cluster's ingress proxy.
	Controller = "clusterctl.local/gateway"
	// ServiceLabel of a Service that the proxy makes is the name of the Gateway that it is for.
	ServiceLabel = "clusterctl.local/gateway"
)
