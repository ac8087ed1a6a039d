package config

import (
	"maps"

	daemons "clusterctl/daemons/config"
)

// FixedSettings returns the present values of the settings that cannot change after the cluster was created. The keys
// are block and name, such as controllers.node_cidr_mask_size.
func (c *Cluster) FixedSettings() map[string]string {
	list := map[string]string{}
	maps.Copy(list, fixedValues("scheduler", daemons.DefaultScheduler(), c.Scheduler))
	maps.Copy(list, fixedValues("controllers", daemons.DefaultControllerManager(), c.Controllers))
	maps.Copy(list, fixedValues("kubelet", daemons.DefaultKubeletSettings(), c.Kubelet))
	maps.Copy(list, fixedValues("proxy", daemons.DefaultProxy(), c.Proxy))
	maps.Copy(list, fixedValues("network", daemons.DefaultNetwork(), c.Network))
	maps.Copy(list, fixedValues("dns", daemons.DefaultDNS(), c.DNS.Settings))
	maps.Copy(list, fixedValues("gitops", daemons.DefaultGitOps(), c.GitOps))
	if c.Ingress != nil {
		maps.Copy(list, fixedValues("ingress", daemons.DefaultIngress(), c.Ingress.Settings))
	}
	return list
}

func fixedValues[T any](block string, cfg T, chosen daemons.Chosen[T]) map[string]string {
	chosen.Over(&cfg)
	list := map[string]string{}
	for _, s := range daemons.Settings(&cfg) {
		if s.Fixed != "" {
			list[block+"."+s.Name] = daemons.Text(s.Of(&cfg))
		}
	}
	return list
}
