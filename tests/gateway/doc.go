// Package gateway runs the conformance suite of Gateway API against kube-ingress, in a network of its own: the control
// plane and nodes are `clusterctl dev`, beside it run kube-ingress and kube-proxy as they run on machines, and the
// pods' backends are servers of this package. It is a module of its own, so that what the suite needs is nobody else's.
package gateway
