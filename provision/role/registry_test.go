package role_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
)

// The declared registries are in the files that containerd and the kubelet read for each pull.
// Proves P05.
func TestRegistriesAreConfiguredForContainerdAndTheKubelet(t *testing.T) {
	m := machine("m", "10.0.0.1", config.RoleNode)
	c := cluster(machine("control", "10.0.0.9", config.RoleControlPlane), m)
	c.Runtime.Registries = []config.Registry{
		{Host: "docker.io", Mirrors: []string{"https://mirror.example:5000", "http://10.0.0.7/v2/hub"}, Username: "hub",
			Password: "p1"},
		{Host: "mirror.example:5000", CA: "CA\n", ClientCert: "CERT\n", ClientKey: "KEY\n", Username: "me",
			Password: "p2"},
		{Host: "plain.example", PlainHTTP: true},
		{Host: "self.example", SkipVerify: true},
		{Host: config.AnyRegistry, Mirrors: []string{"https://all.example"}},
	}
	c.Runtime.Credentials = []config.CredentialProvider{{
		Name: "ecr", Program: "/opt/providers/ecr", Version: "v1", Images: []string{"*.ecr.example"},
		CacheFor: time.Hour, Args: []string{"get"}, Env: map[string]string{"REGION": "eu"},
	}}
	in := role.Input{Cluster: c, Machine: m, State: newState("control"), Files: files{},
		Facts: host.Facts{CanAdjustOOM: true}}
	got := fileTexts(t, in)
	basic := func(user, password string) string {
		return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	}
	const head = "# written by clusterctl: changes made here are put back by the next apply\n"
	const dir = "/etc/containerd/certs.d/"
	const trust = "ca = \"" + dir + "mirror.example:5000/ca.crt\"\nclient = [[\"" + dir +
		"mirror.example:5000/client.crt\", \"" + dir + "mirror.example:5000/client.key\"]]\n"
	for path, want := range map[string]string{
		dir + "docker.io/hosts.toml": head +
			"server = \"https://registry-1.docker.io\"\n\n[host.\"https://mirror.example:5000\"]\ncapabilities = " +
			"[\"pull\", \"resolve\"]\n" + trust +
			"[host.\"https://mirror.example:5000\".header]\nAuthorization = [\"Basic " + basic("me", "p2") + "\"]\n" +
			"\n[host.\"http://10.0.0.7/v2/hub\"]\ncapabilities = [\"pull\", \"resolve\"]\noverride_path = true\n",
		dir + "mirror.example:5000/hosts.toml": head + "server = \"https://mirror.example:5000\"\n" + trust,
		dir + "mirror.example:5000/ca.crt":     "CA\n",
		dir + "mirror.example:5000/client.crt": "CERT\n",
		dir + "mirror.example:5000/client.key": "KEY\n",
		dir + "plain.example/hosts.toml":       head + "server = \"http://plain.example\"\n",
		dir + "self.example/hosts.toml":        head + "server = \"https://self.example\"\nskip_verify = true\n",
		dir + "_default/hosts.toml": head +
			"\n[host.\"https://all.example\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
		"/var/lib/kubelet/config.json": `{"written by":"clusterctl: changes made here are put back by the next ` +
			`apply","auths":{"docker.io":{"auth":"` + basic("hub", "p1") +
			`"},"mirror.example:5000":{"auth":"` + basic("me", "p2") + "\"}}}\n",
		"/etc/kubernetes/credential-providers.yaml": "apiVersion: kubelet.config.k8s.io/v1\nkind: " +
			"CredentialProviderConfig\nproviders:\n- apiVersion: credentialprovider.kubelet.k8s.io/v1\n" +
			"  args:\n  - get\n  defaultCacheDuration: 1h0m0s\n  env:\n  - name: REGION\n    value: eu\n  " +
			"matchImages:\n  - '*.ecr.example'\n  name: ecr\n",
	} {
		if got[path] != want {
			t.Errorf("%s is\n%s\nwant\n%s", path, got[path], want)
		}
	}
	unit := got[step.UnitDir+"kubelet.service"]
	if !strings.Contains(unit, "--image-credential-provider-config=/etc/kubernetes/credential-providers.yaml") ||
		!strings.Contains(unit, "--image-credential-provider-bin-dir=/opt/providers") {
		t.Errorf("the kubelet has no flags for its credential providers:\n%s", unit)
	}
	steps, err := role.Steps(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if f, ok := s.(*step.File); ok && strings.Contains(string(f.Content), basic("me", "p2")) &&
			(!f.Secret || f.Mode != 0o600) {
			t.Errorf("%s contains a password, but has mode %o or is not secret", f.Path, f.Mode)
		}
	}
	if !slices.ContainsFunc(steps, func(s step.Step) bool {
		p, ok := s.(*step.Program)
		return ok && p.Path == "/opt/providers/ecr"
	}) {
		t.Error("no step checks the program of the credential provider")
	}
	c.Runtime.Source = config.RuntimeDistribution
	if text := fileTexts(t, in)["/etc/containerd/config.toml"]; !strings.Contains(text,
		"config_path = \"/etc/containerd/certs.d\"") {
		t.Errorf("the distribution's containerd does not read certs.d:\n%s", text)
	}
}
