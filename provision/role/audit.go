package role

import (
	_ "embed" // the default policy is a file

	"clusterctl/daemons/config"
	"clusterctl/provision/step"
)

// defaultAuditPolicy is the audit policy if the configuration has none.
//
//go:embed audit-policy.yaml
var defaultAuditPolicy string

// apiServerDir is the directory of the API server's own configuration files.
const apiServerDir = Kubernetes + "/apiserver"

// auditLogDir is the directory of the audit log.
const auditLogDir = "/var/log/kubernetes/audit"

// configureAudit configures the API server's audit log. reads are the files whose change restarts the server. taken are
// steps that wait until the server has reloaded changed files.
func (b *builder) configureAudit(cfg *config.APIServer) (reads []string, taken []step.Step) {
	audit := b.Cluster.Audit
	policy, webhook := apiServerDir+"/audit-policy.yaml", apiServerDir+"/audit-webhook.conf"
	if !audit.Enabled {
		b.add(&step.Absent{Path: policy}, &step.Absent{Path: webhook})
		return nil, nil
	}
	text := audit.Policy
	if text == "" {
		text = defaultAuditPolicy
	}
	b.add(&step.Directory{Path: "/var/log/kubernetes"}, &step.Directory{Path: auditLogDir, Mode: 0o700})
	cfg.AuditPolicyFile, cfg.AuditLogPath = b.addFile(policy, text), auditLogDir+"/audit.log"
	cfg.AuditLogMaxAge, cfg.AuditLogMaxBackup, cfg.AuditLogMaxSize = audit.MaxAge, audit.MaxBackups, audit.MaxSize
	if audit.Webhook == "" {
		b.add(&step.Absent{Path: webhook})
		return []string{policy}, nil
	}
	cfg.AuditWebhookConfigFile = b.addSecretFile(webhook, []byte(audit.Webhook))
	return []string{policy}, []step.Step{b.waitForReload(webhook, "audit-webhook-config")}
}
