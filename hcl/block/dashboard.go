package block

import (
	"github.com/hashicorp/hcl/v2"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/hcl/config"
)

type dashboardBlock struct {
	Hostnames []string `hcl:"hostnames,optional" doc:"Names and addresses at which visitors reach the dashboard, besides the names and addresses of its machines: such as that of a load balancer. They are in its certificate." default:"[]"`
}

func decodeDashboard(b *hcl.Block, raw *dashboardBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		return nil
	}
	c.Dashboard = &config.Dashboard{Hostnames: raw.Hostnames}
	for _, name := range raw.Hostnames {
		if validation.IsDNS1123Subdomain(name) != nil && validation.IsValidIP(nil, name) != nil {
			diags = append(diags, newError(nestedRange(b, "dashboard", "hostnames"), "Invalid name of a host",
				"%q is neither a name, as \"dashboard.example.com\", nor an address.", name))
		}
	}
	return diags
}
