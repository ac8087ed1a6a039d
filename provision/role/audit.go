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

// settings is the directory of the API server's own configuration files.
const settings = Kubernetes + "/apiserver"

// auditLogs is the directory of the audit log.
const auditLogs = "/var/log/kubernetes/audit"

// audit configures the API server's audit log. reads are the files whose change restarts the server. taken are steps
// that wait until the server has reloaded changed files.
func (b *builder) audit(cfg *config.APIServer) (reads []string, taken []step.Step) {
	audit := b.Cluster.Audit
	policy, webhook := settings+"/audit-policy.yaml", settings+"/audit-webhook.conf"
	if !audit.Enabled {
		b.add(&step.Absent{Path: policy}, &step.Absent{Path: webhook})
		return nil, nil
	}
	text := audit.Policy
	if text == "" {
		text = defaultAuditPolicy
	}
	b.add(&step.Directory{Path: "/var/log/kubernetes"}, &step.Directory{Path: auditLogs, Mode: 0o700})
	cfg.AuditPolicyFile, cfg.AuditLogPath = b.file(policy, text), auditLogs+"/audit.log"
	cfg.AuditLogMaxAge, cfg.AuditLogMaxBackup, cfg.AuditLogMaxSize = audit.MaxAge, audit.MaxBackups, audit.MaxSize
	if audit.Webhook == "" {
		b.add(&step.Absent{Path: webhook})
		return []string{policy}, nil
	}
	cfg.AuditWebhookConfigFile = b.secret(webhook, []byte(audit.Webhook))
	return []string{policy}, []step.Step{b.reread(webhook, "audit-webhook-config")}
}
