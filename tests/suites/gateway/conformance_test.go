package gateway

import (
	"os"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// Gateways, HTTPRoutes and ReferenceGrants conform to their specification, with all features that the GatewayClass
// claims.
// Proves S32.
func TestConformance(t *testing.T) {
	t.Setenv("KUBECONFIG", startCluster(t))
	options := conformance.DefaultOptions(t)
	options.GatewayClassName = className
	options.ConformanceProfiles = []suite.ConformanceProfileName{suite.GatewayHTTPConformanceProfileName}
	// Tests with and without ReferenceGrants use the same secret.
	options.CleanupBaseResources, options.DisableParallelTests = false, true
	options.Implementation = confv1.Implementation{
		Organization: "clusterctl", Project: "clusterctl", URL: "https://clusterctl.local",
		Version: os.Getenv("CLUSTERCTL_VERSION"), Contact: []string{"clusterctl"},
	}
	options.ReportOutputPath = os.Getenv("CONFORMANCE_REPORT")
	conformance.RunConformanceWithOptions(t, options)
}
