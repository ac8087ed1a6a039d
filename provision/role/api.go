package role

import (
	"net/netip"
	"slices"

	"clusterctl/daemons/config"
	"clusterctl/provision/step"
)

// configureAuth configures authentication, authorization and request limits of the API server. The server reloads its
// files, so the returned steps wait until it has loaded changed ones.
func (b *builder) configureAuth(cfg *config.APIServer) (taken []step.Step) {
	api := b.Cluster.API
	if api.MaxRequests > 0 {
		cfg.MaxRequestsInflight = api.MaxRequests
	}
	if api.MaxMutating > 0 {
		cfg.MaxMutatingRequestsInflight = api.MaxMutating
	}
	// A setting is a file and a flag that names it. If the setting is empty, both are absent.
	for _, s := range []struct {
		name, text string
		flag       *string
		secret     bool
		check      string // the readyz check that reports whether the server uses the file
	}{
		{"authorization-webhook.conf", api.AuthorizationWebhook, new(string), true, "authorization-config"},
		{"authentication.yaml", api.Authentication, &cfg.AuthenticationConfig, false, "authentication-config"},
		{"token-webhook.conf", api.TokenWebhook, &cfg.AuthenticationTokenWebhookConfigFile, true,
			"token-webhook-config"},
		{"authorization.yaml", api.Authorization, &cfg.AuthorizationConfig, false, "authorization-config"},
	} {
		path := apiServerDir + "/" + s.name
		switch {
		case s.text == "":
			b.add(&step.Absent{Path: path})
			continue
		case s.secret:
			b.addSecretFile(path, []byte(s.text))
		default:
			b.addFile(path, s.text)
		}
		*s.flag = path
		if s.flag == &cfg.AuthorizationConfig {
			cfg.AuthorizationMode = nil // the file replaces it
		}
		taken = append(taken, b.waitForReload(path, s.check))
	}
	return taken
}

// waitForReload returns a step that waits until the API server uses a file, as reported by one of its readyz checks.
func (b *builder) waitForReload(path, check string) step.Step {
	return &step.AwaitReload{Path: path, URL: serverCheckURL(b.Machine.IP, check), Client: ServerClient,
		Unit: "kube-apiserver"}
}

// configureAdmission configures the API server's admission plugins. It returns the files that the server reads at
// start.
func (b *builder) configureAdmission(cfg *config.APIServer) (reads []string) {
	for _, name := range b.Cluster.API.AdmissionPlugins {
		if !slices.Contains(cfg.EnableAdmissionPlugins, name) {
			cfg.EnableAdmissionPlugins = append(slices.Clone(cfg.EnableAdmissionPlugins), name)
		}
	}
	// The API server cannot learn these addresses from the API, so the configuration names them.
	cfg.RestrictedExternalIPs, cfg.AllowedExternalIPs = toStrings(b.Cluster.PodCIDRs), b.Cluster.API.AllowedExternalIPs
	if b.Cluster.VirtualAddress.IsValid() {
		cfg.RestrictedExternalIPs = append(cfg.RestrictedExternalIPs, b.Cluster.VirtualAddress.String())
	}
	if endpoint, err := netip.ParseAddrPort(b.Cluster.Endpoint); err == nil &&
		endpoint.Addr() != b.Cluster.VirtualAddress {
		cfg.RestrictedExternalIPs = append(cfg.RestrictedExternalIPs, endpoint.Addr().String())
	}
	path := apiServerDir + "/admission.yaml"
	if b.Cluster.API.Admission == "" {
		b.add(&step.Absent{Path: path})
		return nil
	}
	cfg.AdmissionControlConfigFile = b.addFile(path, b.Cluster.API.Admission)
	return []string{path}
}
