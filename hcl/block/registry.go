package block

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type registryBlock struct {
	Host       string   `hcl:"host,label"`
	Mirrors    []string `hcl:"mirrors,optional" doc:"URLs of mirrors, such as \"https://mirror.example:5000\", tried in order before the registry. A registry block of the mirror's host sets its TLS and credentials."`
	PlainHTTP  bool     `hcl:"plain_http,optional" doc:"Use HTTP without TLS." default:"false"`
	SkipVerify bool     `hcl:"skip_verify,optional" doc:"Do not verify the registry's certificate. An attacker in the network path can then replace images." default:"false"`
	CA         string   `hcl:"ca,optional" doc:"PEM of the CAs of the registry's certificate, such as file(\"ca.pem\"), in addition to those that the machine trusts."`
	ClientCert string   `hcl:"client_certificate,optional" doc:"PEM of the client certificate that nodes present to the registry."`
	ClientKey  string   `hcl:"client_key,optional" doc:"PEM of the private key of client_certificate."`
	Username   string   `hcl:"username,optional" doc:"User name for pulls of pods without a pull secret."`
	Password   string   `hcl:"password,optional" doc:"Password of the user. Use a sensitive variable."`
}

type credentialBlock struct {
	Name    string            `hcl:"name,label"`
	Program string            `hcl:"program" doc:"Absolute path of the program on the nodes. Apply does not install it. All providers must be in the same folder."`
	Images  []string          `hcl:"match_images" doc:"Images for which the kubelet runs the program, such as [\"*.dkr.ecr.*.amazonaws.com\"]: a host with * for a label, and an optional port and path prefix."`
	Cache   string            `hcl:"cache,optional" doc:"How long the kubelet caches credentials if the response does not set a duration." default:"\"12h\""`
	Version string            `hcl:"api_version,optional" doc:"Version of the credentialprovider.kubelet.k8s.io API: v1, v1beta1 or v1alpha1." default:"\"v1\""`
	Args    []string          `hcl:"args,optional" doc:"Arguments of the program."`
	Env     map[string]string `hcl:"env,optional" doc:"Environment variables of the program, in addition to the kubelet's."`
}

var registryHost = regexp.MustCompile(
	`^(\*|([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?)$`)

func decodeRegistries(b *hcl.Block, raw *runtimeBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	for i, r := range raw.Registries {
		at := nthRange(b, "runtime", "registry", i)
		add := func(summary, format string, args ...any) {
			diags = append(diags, newError(at, summary, format, args...))
		}
		switch {
		case !registryHost.MatchString(r.Host):
			add("Invalid registry", "%q is not the host of a registry, such as \"registry.example:5000\". Write it "+
				"without https:// and without a path, or \"*\" for all registries without a block.", r.Host)
		case slices.ContainsFunc(c.Runtime.Registries,
			func(other config.Registry) bool { return other.Host == r.Host }):
			add("Duplicate registry", "There is already a registry block for %q.", r.Host)
		case r.Host == config.AnyRegistry && (r.PlainHTTP || r.SkipVerify || r.CA != "" || r.ClientCert != "" ||
			r.Username != ""):
			add("Invalid settings for all registries",
				"registry \"*\" can only have mirrors. Configure TLS and credentials in a block for each registry.")
		case r.PlainHTTP && (r.SkipVerify || r.CA != "" || r.ClientCert != ""):
			add("TLS settings with plain_http",
				"%s sets plain_http and therefore uses no certificates. Remove plain_http or the TLS settings.", r.Host)
		case (r.Username == "") != (r.Password == ""):
			add("Incomplete credentials", "Set both username and password of %s, or neither.", r.Host)
		case strings.Contains(r.Username, ":"):
			add("Invalid username", "The username of %s contains a colon, which HTTP basic authentication does "+
				"not permit.", r.Host)
		case r.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(r.CA)):
			add("Invalid ca", "ca of %s is not a certificate in PEM. Set it to the content of the file, such as "+
				"file(\"ca.pem\").", r.Host)
		}
		if r.ClientCert != "" || r.ClientKey != "" {
			if _, err := tls.X509KeyPair([]byte(r.ClientCert), []byte(r.ClientKey)); err != nil {
				add("Invalid client certificate",
					"client_certificate and client_key of %s are not a certificate and its private key in PEM.", r.Host)
			}
		}
		for _, mirror := range r.Mirrors {
			u, err := url.Parse(mirror)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
				u.RawQuery != "" || u.Fragment != "" ||
				strings.ContainsFunc(mirror, func(r rune) bool {
					return r <= ' ' || r > '~' || r == '"' || r == '\\'
				}) {
				add("Invalid mirror", "Write the URL of a mirror of %s as \"https://mirror.example:5000\", without a "+
					"user. Set credentials in a registry block for the mirror's host.", r.Host)
			}
		}
		c.Runtime.Registries = append(c.Runtime.Registries, config.Registry{
			Host: r.Host, Mirrors: r.Mirrors, PlainHTTP: r.PlainHTTP, SkipVerify: r.SkipVerify, CA: r.CA,
			ClientCert: r.ClientCert, ClientKey: r.ClientKey, Username: r.Username, Password: r.Password,
		})
	}
	return append(diags, decodeCredentials(b, raw, c)...)
}

// nthRange returns the range of the block of type typ at an index within an inner block. If the blocks are dynamic, it
// returns the range of the inner block.
func nthRange(b *hcl.Block, inner, typ string, index int) *hcl.Range {
	if native, ok := nativeBody(b.Body); ok {
		for _, block := range native.Blocks {
			if block.Type != inner {
				continue
			}
			for _, one := range block.Body.Blocks {
				if one.Type != typ {
					continue
				}
				if index == 0 {
					return one.DefRange().Ptr()
				}
				index--
			}
		}
	}
	return nestedRange(b, inner, typ)
}

func decodeCredentials(b *hcl.Block, raw *runtimeBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	for i, p := range raw.Credentials {
		at := nthRange(b, "runtime", "credential_provider", i)
		cache, err := time.ParseDuration(cmp.Or(p.Cache, "12h"))
		switch {
		case !path.IsAbs(p.Program) || path.Clean(p.Program) != p.Program || strings.ContainsAny(p.Program, " \t\n\"'"):
			diags = append(diags, newError(at, "Invalid program",
				"%q is not the absolute path of a program, such as \"/usr/local/bin/ecr-credential-provider\".",
				p.Program))
		case len(c.Runtime.Credentials) > 0 && path.Dir(c.Runtime.Credentials[0].Program) != path.Dir(p.Program):
			diags = append(diags, newError(at, "Credential providers in different folders",
				"The kubelet requires all credential providers in one folder. Move %s to the folder of %s.", p.Program,
				c.Runtime.Credentials[0].Program))
		case slices.ContainsFunc(c.Runtime.Credentials,
			func(other config.CredentialProvider) bool { return other.Program == p.Program }):
			diags = append(diags, newError(at, "Duplicate credential provider", "Two blocks have the program %s.",
				p.Program))
		case len(p.Images) == 0:
			diags = append(diags, newError(at, "Missing match_images", "match_images of %q is empty.", p.Name))
		case slices.Contains(p.Images, "") || strings.Contains(strings.Join(p.Images, " "), "://"):
			diags = append(diags, newError(at, "Invalid match_images",
				"Write the images of %q as \"*.registry.example\", without https://.", p.Name))
		case err != nil || cache < 0:
			diags = append(diags, newError(at, "Invalid duration", "%q is not a duration, such as \"12h\".", p.Cache))
		case !slices.Contains([]string{"", "v1", "v1beta1", "v1alpha1"}, p.Version):
			diags = append(diags, newError(at, "Unknown version",
				"%q is not a version of credentialprovider.kubelet.k8s.io. Write v1, v1beta1 or v1alpha1.", p.Version))
		}
		c.Runtime.Credentials = append(c.Runtime.Credentials, config.CredentialProvider{
			Name: p.Name, Program: p.Program, Version: orDefault(p.Version, "v1"), Images: p.Images, CacheFor: cache,
			Args: p.Args, Env: maps.Clone(p.Env),
		})
	}
	return diags
}
