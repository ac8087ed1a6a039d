package role

import (
	"clusterctl/daemons/config"
	"clusterctl/provision/step"
)

// answering has the API server know, let in and hold up whom the configuration says. It
// returns the files whose change restarts it, and what is waited for when those have changed
// that it reads again by itself.
func (b *builder) answering(cfg *config.APIServer) (reads []string, taken []step.Step) {
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
		reread     string // the check that says whether the server uses it
	}{
		{"authorization-webhook.conf", api.AuthorizationWebhook, new(string), true, ""},
		{"authentication.yaml", api.Authentication, &cfg.AuthenticationConfig, false, "authentication-config"},
		{"token-webhook.conf", api.TokenWebhook, &cfg.AuthenticationTokenWebhookConfigFile, true, ""},
		{"authorization.yaml", api.Authorization, &cfg.AuthorizationConfig, false, "authorization-config"},
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
		if s.reread == "" {
			reads = append(reads, path)
		} else {
			taken = append(taken, &step.Reread{Path: path, URL: serverCheck(b.Machine.IP, s.reread), Client: ServerClient, Unit: "kube-apiserver"})
		}
	}
	return reads, taken
}
