// Package gateway runs the conformance suite of Gateway API against kube-ingress in its own network. The control plane
// and nodes are `clusterctl dev`. kube-ingress and kube-proxy run beside it as they run on machines, and the pods'
// backends are servers of this package. It is a separate module, so that other code does not depend on what the suite
// requires.
package gateway
