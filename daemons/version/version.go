// Package version says which release this is and which Kubernetes API it speaks.
package version

// Version is the release of clusterctl, set when it is linked.
var Version = "dev"

// Kubernetes is the API version that clients see at /version and on nodes.
const Kubernetes = "v1.37.2"
