package block

import (
	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type apiBlock struct {
	Endpoint    string `hcl:"endpoint,optional" doc:"host:port that kubeconfigs name and certificates hold. An IP address that no machine has is a virtual address: one machine of the control plane holds it at a time, and another takes it within seconds. A name, or an address with virtual = false, is a load balancer's that you bring. Nothing of the cluster itself depends on it." default:"the first control-plane machine"`
	Virtual     *bool  `hcl:"virtual,optional" doc:"Whether the control plane itself holds the endpoint's address." default:"true for an IP address that no machine has"`
	MaxRequests *int   `hcl:"max_requests_inflight,optional" doc:"Requests that only read and that an API server works on at once. With max_mutating_requests_inflight they are the seats that FlowSchemas and PriorityLevelConfigurations share out; further requests wait." default:"400"`
	MaxMutating *int   `hcl:"max_mutating_requests_inflight,optional" doc:"Requests that change something and that an API server works on at once." default:"200"`
}

// decodeAPI reads how API servers answer. Where they are reached is decoded before.
func decodeAPI(b *hcl.Block, raw *apiBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		raw = &apiBlock{}
	}
	c.API = config.API{MaxRequests: deref(raw.MaxRequests, 400), MaxMutating: deref(raw.MaxMutating, 200)}
	for name, n := range map[string]int{"max_requests_inflight": c.API.MaxRequests, "max_mutating_requests_inflight": c.API.MaxMutating} {
		if n < 1 {
			diags = append(diags, fail(nested(b, "api", name), "Invalid number of requests", "%s must be at least 1.", name))
		}
	}
	return diags
}
