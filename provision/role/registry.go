package role

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"clusterctl/daemons/config"
	hcl "clusterctl/hcl/config"
	"clusterctl/provision/step"
)

const (
	// registryDir has a folder with a hosts.toml for each registry. containerd reads it for each pull.
	registryDir = "/etc/containerd/certs.d"
	hostsFile   = "hosts.toml"
	// registryCredentials has the credentials for pods without pull secrets. The kubelet reads it for each pull.
	registryCredentials = "/var/lib/kubelet/config.json"
	// credentialsHeader is the beginning of registryCredentials if clusterctl wrote it. Other tools may write the same
	// file.
	credentialsHeader = `{"written by":"clusterctl`
	// providersFile is the kubelet's CredentialProviderConfig.
	providersFile = Kubernetes + "/credential-providers.yaml"
)

// addRegistries adds the steps that configure the registries of the cluster block for containerd and the kubelet.
func addRegistries(b *builder) {
	var keep []string
	for _, r := range b.Cluster.Runtime.Registries {
		name := r.Host
		if name == hcl.AnyRegistry {
			name = "_default"
		}
		keep = append(keep, name)
		dir := registryDir + "/" + name
		b.tlsFiles(dir, r)
		text, secret := b.hostsTOML(r)
		if secret {
			b.addSecretFile(dir+"/"+hostsFile, []byte(text))
		} else {
			b.addFile(dir+"/"+hostsFile, text)
		}
	}
	b.add(&step.PruneDirs{Dir: registryDir, File: hostsFile, Written: fileHeader, Keep: keep})
	b.addCredentials()
}

func (b *builder) tlsFiles(dir string, r hcl.Registry) {
	for _, f := range []struct{ name, text string }{{"ca.crt", r.CA}, {"client.crt", r.ClientCert}} {
		if f.text != "" {
			b.addFile(dir+"/"+f.name, f.text)
		} else {
			b.add(&step.Absent{Path: dir + "/" + f.name})
		}
	}
	if r.ClientKey != "" {
		b.addSecretFile(dir+"/client.key", []byte(r.ClientKey))
	} else {
		b.add(&step.Absent{Path: dir + "/client.key", NoCopy: true})
	}
}

// hostsTOML returns a registry's hosts.toml, and whether it contains a password.
func (b *builder) hostsTOML(r hcl.Registry) (text string, secret bool) {
	out := []string{fileHeader + ": changes made here are put back by the next apply"}
	if r.Host != hcl.AnyRegistry {
		server := r.Host
		if server == "docker.io" {
			server = "registry-1.docker.io"
		}
		scheme := "https"
		if r.PlainHTTP {
			scheme = "http"
		}
		out = append(out, fmt.Sprintf("server = %q", scheme+"://"+server))
		out = append(out, tlsLines(r)...)
	}
	for _, mirror := range r.Mirrors {
		out = append(out, "", fmt.Sprintf("[host.%q]", mirror), `capabilities = ["pull", "resolve"]`)
		u, err := url.Parse(mirror)
		if err != nil {
			continue // cannot happen: the configuration was validated
		}
		if strings.HasPrefix(u.Path, "/v2") {
			out = append(out, "override_path = true")
		}
		i := slices.IndexFunc(b.Cluster.Runtime.Registries,
			func(other hcl.Registry) bool { return other.Host == u.Host })
		if i < 0 {
			continue
		}
		of := b.Cluster.Runtime.Registries[i]
		out = append(out, tlsLines(of)...)
		if of.Username != "" {
			secret = true
			out = append(out, fmt.Sprintf("[host.%q.header]", mirror), fmt.Sprintf("Authorization = [%q]",
				"Basic "+basicAuth(of)))
		}
	}
	return joinLines(out...), secret
}

// tlsLines returns the lines of hosts.toml that configure TLS to a registry.
func tlsLines(r hcl.Registry) (out []string) {
	dir := registryDir + "/" + r.Host
	if r.SkipVerify {
		out = append(out, "skip_verify = true")
	}
	if r.CA != "" {
		out = append(out, fmt.Sprintf("ca = %q", dir+"/ca.crt"))
	}
	if r.ClientCert != "" {
		out = append(out, fmt.Sprintf("client = [[%q, %q]]", dir+"/client.crt", dir+"/client.key"))
	}
	return out
}

// basicAuth returns the base64-encoded user and password of a registry, for HTTP basic authentication.
func basicAuth(r hcl.Registry) string {
	return base64.StdEncoding.EncodeToString([]byte(r.Username + ":" + r.Password))
}

// addCredentials adds the step that writes or removes the registry credentials of the kubelet.
func (b *builder) addCredentials() {
	auths := map[string]map[string]string{}
	for _, r := range b.Cluster.Runtime.Registries {
		if r.Username != "" {
			auths[r.Host] = map[string]string{"auth": basicAuth(r)}
		}
	}
	if len(auths) == 0 {
		b.add(&step.Absent{Path: registryCredentials, Written: credentialsHeader, NoCopy: true})
		return
	}
	text, err := json.Marshal(auths)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("write the credentials of registries: %w", err)
	}
	b.addSecretFile(registryCredentials,
		[]byte(credentialsHeader+`: changes made here are put back by the next apply","auths":`+string(text)+"}\n"))
}

// configureProviders configures the kubelet's credential providers. It returns the files whose change restarts the
// kubelet.
func (b *builder) configureProviders(cfg *config.Kubelet) []string {
	list := b.Cluster.Runtime.Credentials
	if len(list) == 0 {
		b.add(&step.Absent{Path: providersFile, NoCopy: true})
		return nil
	}
	var providers []map[string]any
	for _, p := range list {
		one := map[string]any{
			"name": path.Base(p.Program), "matchImages": p.Images, "defaultCacheDuration": p.CacheFor.String(),
			"apiVersion": "credentialprovider.kubelet.k8s.io/" + p.Version,
		}
		if len(p.Args) > 0 {
			one["args"] = p.Args
		}
		var env []map[string]string
		for _, name := range slices.Sorted(maps.Keys(p.Env)) {
			env = append(env, map[string]string{"name": name, "value": p.Env[name]})
		}
		if env != nil {
			one["env"] = env
		}
		providers = append(providers, one)
		b.add(&step.Program{Path: p.Program, For: "credential_provider " + p.Name})
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "kubelet.config.k8s.io/v1",
		"kind": "CredentialProviderConfig", "providers": providers})
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("write the configuration of credential providers: %w", err)
	}
	cfg.ImageCredentialProviderConfig = b.addSecretFile(providersFile, text)
	cfg.ImageCredentialProviderBinDir = path.Dir(list[0].Program)
	return []string{providersFile}
}
