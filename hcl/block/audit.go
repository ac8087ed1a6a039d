package block

import (
	"github.com/hashicorp/hcl/v2"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"clusterctl/hcl/config"
)

type auditBlock struct {
	Enabled    *bool  `hcl:"enabled,optional" doc:"Whether the API servers write an audit log, to /var/log/kubernetes/audit/audit.log on their machines." default:"true"`
	Policy     string `hcl:"policy,optional" doc:"A Policy of audit.k8s.io/v1, as in file(\"audit-policy.yaml\"): what is recorded about which requests." default:"what changes something, what is read of secrets and config maps, and who runs something in pods, without contents"`
	MaxAge     *int   `hcl:"max_age,optional" doc:"Days for which rotated logs are kept." default:"30"`
	MaxBackups *int   `hcl:"max_backups,optional" doc:"Number of rotated logs that are kept." default:"10"`
	MaxSize    *int   `hcl:"max_size,optional" doc:"Size at which the log is rotated, in megabytes." default:"100"`
	Webhook    string `hcl:"webhook,optional" doc:"A kubeconfig, as in file(\"audit-webhook.conf\"), of a webhook that also receives the events, in batches." default:"none"`
}

func decodeAudit(b *hcl.Block, raw *auditBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		raw = &auditBlock{}
	}
	c.Audit = config.Audit{
		Enabled: valueOr(raw.Enabled, true), Policy: raw.Policy, Webhook: raw.Webhook,
		MaxAge: valueOr(raw.MaxAge, 30), MaxBackups: valueOr(raw.MaxBackups, 10), MaxSize: valueOr(raw.MaxSize, 100),
	}
	for name, n := range map[string]int{"max_age": c.Audit.MaxAge, "max_backups": c.Audit.MaxBackups,
		"max_size": c.Audit.MaxSize} {
		if n < 1 {
			diags = append(diags, newError(nestedRange(b, "audit", name), "Invalid bound of the audit log",
				"%s must be at least 1.", name))
		}
	}
	if raw.Policy != "" {
		var policy auditv1.Policy
		err := yaml.UnmarshalStrict([]byte(raw.Policy), &policy)
		switch {
		case err != nil:
			diags = append(diags, newError(nestedRange(b, "audit", "policy"), "Invalid audit policy",
				"It is not a Policy of audit.k8s.io/v1: %v. Write one, as policy = file(\"audit-policy.yaml\").", err))
		case policy.Kind != "Policy" || policy.APIVersion != auditv1.SchemeGroupVersion.String() ||
			len(policy.Rules) == 0:
			diags = append(diags, newError(nestedRange(b, "audit", "policy"), "Invalid audit policy",
				"It must begin with apiVersion: %s and kind: Policy, and have rules.", auditv1.SchemeGroupVersion))
		}
	}
	return diags
}
