package block

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
)

type apiBlock struct {
	Endpoint    string `hcl:"endpoint,optional" doc:"host:port in kubeconfigs and certificates. An IP address that no machine has is a virtual address: one machine of the control plane holds it at a time, and another takes over within seconds. A name, or an address with virtual = false, belongs to your own load balancer. The cluster itself does not depend on the endpoint." default:"the first control-plane machine"`
	Virtual     *bool  `hcl:"virtual,optional" doc:"Whether the control plane itself holds the endpoint's address." default:"true for an IP address that no machine has"`
	MaxRequests *int   `hcl:"max_requests_inflight,optional" doc:"Reading requests that an API server processes at a time. The sum with max_mutating_requests_inflight is the number of seats that FlowSchemas and PriorityLevelConfigurations divide; further requests wait." default:"400"`
	MaxMutating *int   `hcl:"max_mutating_requests_inflight,optional" doc:"Writing requests that an API server processes at a time." default:"200"`

	Authentication       string   `hcl:"authentication,optional" doc:"An AuthenticationConfiguration of apiserver.config.k8s.io, as in file(\"authentication.yaml\"): other issuers of tokens (OIDC), how their claims become users, and paths that are served without credentials." default:"this cluster's own tokens; health and version without credentials"`
	TokenWebhook         string   `hcl:"token_webhook,optional" doc:"A kubeconfig, as in file(\"tokens.conf\"), of a webhook that authenticates tokens which no other authenticator knows." default:"none"`
	Authorization        string   `hcl:"authorization,optional" doc:"An AuthorizationConfiguration of apiserver.config.k8s.io, as in file(\"authorization.yaml\"): authorizers in order, including webhooks. The kubeConfigFile of a webhook is /etc/kubernetes/apiserver/authorization-webhook.conf." default:"Node, then RBAC"`
	AuthorizationWebhook string   `hcl:"authorization_webhook,optional" doc:"The kubeconfig at that path." default:"none"`
	AdmissionPlugins     []string `hcl:"enable_admission_plugins,optional" doc:"Additional admission plugins to enable: DenyServiceExternalIPs, OwnerReferencesPermissionEnforcement." default:"none"`
	AllowedExternalIPs   []string `hcl:"allowed_external_ips,optional" doc:"CIDRs and addresses that Services may use as external IPs although they belong to machines, the API, the cluster's networks or an address pool." default:"none"`
	Admission            string   `hcl:"admission,optional" doc:"An AdmissionConfiguration of apiserver.config.k8s.io, as in file(\"admission.yaml\"), with a PodSecurityConfiguration: the pod security of namespaces without labels, and exemptions. A change restarts the API servers, one by one." default:"privileged; nothing is exempt"`
}

// decodeAPI decodes the settings of API servers, except the endpoint, which is decoded earlier.
func decodeAPI(b *hcl.Block, raw *apiBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		raw = &apiBlock{}
	}
	c.API = config.API{MaxRequests: valueOr(raw.MaxRequests, 400), MaxMutating: valueOr(raw.MaxMutating, 200)}
	c.API.Authentication, c.API.TokenWebhook, c.API.Authorization, c.API.AuthorizationWebhook = raw.Authentication,
		raw.TokenWebhook, raw.Authorization, raw.AuthorizationWebhook
	c.API.AdmissionPlugins, c.API.Admission = raw.AdmissionPlugins, raw.Admission
	for _, name := range raw.AdmissionPlugins {
		if !slices.Contains(daemons.OptionalAdmissionPlugins, name) {
			diags = append(diags, newError(nestedRange(b, "api", "enable_admission_plugins"), "Unknown admission "+
				"plugin",
				"%q cannot be enabled: %s can; the others are always there.", name,
				strings.Join(daemons.OptionalAdmissionPlugins, " and ")))
		}
	}
	for _, text := range raw.AllowedExternalIPs {
		if _, err := netip.ParseAddr(text); err == nil {
			continue
		}
		if _, err := netip.ParsePrefix(text); err != nil {
			diags = append(diags, newError(nestedRange(b, "api", "allowed_external_ips"), "Invalid network",
				"%q is neither a network, as in \"192.0.2.0/24\", nor an address.", text))
		}
	}
	c.API.AllowedExternalIPs = raw.AllowedExternalIPs
	for name, of := range map[string]struct{ text, kind string }{
		"authentication": {raw.Authentication, "AuthenticationConfiguration"},
		"authorization":  {raw.Authorization, "AuthorizationConfiguration"},
		"admission":      {raw.Admission, "AdmissionConfiguration"}, "token_webhook": {raw.TokenWebhook, "Config"},
		"authorization_webhook": {raw.AuthorizationWebhook, "Config"},
	} {
		var typeMeta metav1.TypeMeta
		if of.text == "" {
			continue
		}
		if err := yaml.Unmarshal([]byte(of.text), &typeMeta); err != nil || typeMeta.Kind != of.kind {
			diags = append(diags, newError(nestedRange(b, "api", name), "Invalid "+of.kind,
				"%s must be a YAML document of kind %s: read one with file(\"PATH\").", name, of.kind))
		}
	}
	if raw.AuthorizationWebhook != "" && raw.Authorization == "" {
		diags = append(diags, newError(nestedRange(b, "api", "authorization_webhook"), "Webhook that is never called",
			"authorization_webhook is of no use without authorization, an AuthorizationConfiguration whose "+
				"authorizers name it: its kubeConfigFile is /etc/kubernetes/apiserver/authorization-webhook.conf."))
	}
	for name, n := range map[string]int{"max_requests_inflight": c.API.MaxRequests,
		"max_mutating_requests_inflight": c.API.MaxMutating} {
		if n < 1 {
			diags = append(diags, newError(nestedRange(b, "api", name), "Invalid number of requests",
				"%s must be at least 1.", name))
		}
	}
	return diags
}
