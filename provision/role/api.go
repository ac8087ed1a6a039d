package role

import (
	"clusterctl/daemons/config"
	"clusterctl/provision/step"
)

// answering has the API server know, let in and hold up whom the configuration says, and
// returns the files whose change restarts it.
func (b *builder) answering(cfg *config.APIServer) (reads []string) {
	api := b.Cluster.API
	if api.MaxRequests > 0 {
		cfg.MaxRequestsInflight = api.MaxRequests
	}
	if api.MaxMutating > 0 {
		cfg.MaxMutatingRequestsInflight = api.MaxMutating
	}
	cfg.EnableAdmissionPlugins = api.AdmissionPlugins
	// A setting is a file and the flag that names it; without the one there is not the other.
	for _, s := range []struct {
		name, text string
		flag       *string
		secret     bool
	}{
		{"authentication.yaml", api.Authentication, &cfg.AuthenticationConfig, false},
		{"token-webhook.conf", api.TokenWebhook, &cfg.AuthenticationTokenWebhookConfigFile, true},
		{"authorization.yaml", api.Authorization, &cfg.AuthorizationConfig, false},
		{"authorization-webhook.conf", api.AuthorizationWebhook, new(string), true},
	} {
		path := settings + "/" + s.name
		switch {
		case s.text == "":
			b.add(&step.Absent{Path: path})
			continue
		case s.secret:
			b.secret(path, []byte(s.text))
		default:
			b.file(path, s.text)
		}
		*s.flag = path
		reads = append(reads, path)
	}
	return reads
}
