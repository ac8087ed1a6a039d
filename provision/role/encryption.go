package role

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// encryptionFile is in a directory that static pods mount, so that they see a replaced file.
const encryptionFile = PKI + "/encryption.yaml"

// Encryption returns the API server's encryption configuration. A change of the file does not restart the server,
// because the server reloads it.
func Encryption(s *state.State) (*step.File, error) {
	text, err := encryptionConfiguration(s.Keys.Encryption)
	return &step.File{Path: encryptionFile, Content: text, Mode: 0o600, Secret: true}, err
}

// encryptionConfiguration renders the state's keys as an EncryptionConfiguration.
func encryptionConfiguration(e state.Encryption) ([]byte, error) {
	var write, read []apiserverv1.ProviderConfiguration
	for _, k := range e.Keys {
		if p := providerConfig(k); k.ID() == e.Write {
			write = append(write, p)
		} else {
			read = append(read, p)
		}
	}
	plain := apiserverv1.ProviderConfiguration{Identity: &apiserverv1.IdentityConfiguration{}}
	c := apiserverv1.EncryptionConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: apiserverv1.SchemeGroupVersion.String(), Kind: "EncryptionConfiguration"},
	}
	if len(e.Resources) > 0 {
		c.Resources = append(
			c.Resources,
			apiserverv1.ResourceConfiguration{
				Resources: e.Resources,
				Providers: slices.Concat(write, read, []apiserverv1.ProviderConfiguration{plain}),
			},
		)
	}
	rest := e.LeavingResources
	if len(c.Resources)+len(rest) == 0 {
		rest = []string{"secrets"}
	}
	if len(rest) > 0 {
		c.Resources = append(
			c.Resources,
			apiserverv1.ResourceConfiguration{
				Resources: rest,
				Providers: slices.Concat([]apiserverv1.ProviderConfiguration{plain}, write, read),
			},
		)
	}
	return yaml.Marshal(c)
}

func providerConfig(k state.EncryptionKey) (p apiserverv1.ProviderConfiguration) {
	keys := []apiserverv1.Key{{Name: k.Name, Secret: base64.StdEncoding.EncodeToString(k.Secret)}}
	switch k.Provider {
	case config.EncryptionKMS:
		p.KMS = &apiserverv1.KMSConfiguration{APIVersion: "v2", Name: k.Name, Endpoint: k.Endpoint}
	case "aesgcm":
		p.AESGCM = &apiserverv1.AESConfiguration{Keys: keys}
	case "aescbc":
		p.AESCBC = &apiserverv1.AESConfiguration{Keys: keys}
	default:
		p.Secretbox = &apiserverv1.SecretboxConfiguration{Keys: keys}
	}
	return p
}

// ReadEncryption parses an EncryptionConfiguration that encryptionConfiguration rendered. Keys that are no longer on
// machines are missing from the result.
func ReadEncryption(text []byte) (state.Encryption, error) {
	var c apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return state.Encryption{}, fmt.Errorf("read %s: %w", encryptionFile, err)
	}
	var e state.Encryption
	for _, r := range c.Resources {
		var keys []state.EncryptionKey
		plain := -1 // index of the identity provider
		for i, p := range r.Providers {
			k, err := providerKey(p)
			switch {
			case err != nil:
				return state.Encryption{}, fmt.Errorf("read %s: %w", encryptionFile, err)
			case p.Identity != nil:
				plain = i
			default:
				keys = append(keys, k)
			}
		}
		if e.Keys == nil {
			e.Keys = keys
		}
		if plain != 0 && len(keys) > 0 {
			e.Resources, e.Write = r.Resources, keys[0].ID()
		} else if len(keys) > 0 {
			e.LeavingResources = r.Resources
		}
	}
	return e, nil
}

// providerKey returns the single key of a provider.
func providerKey(p apiserverv1.ProviderConfiguration) (state.EncryptionKey, error) {
	named := func(provider string, keys []apiserverv1.Key) (state.EncryptionKey, error) {
		if len(keys) != 1 {
			return state.EncryptionKey{}, fmt.Errorf("%s has %d keys, not one", provider, len(keys))
		}
		secret, err := base64.StdEncoding.DecodeString(keys[0].Secret)
		if err != nil {
			return state.EncryptionKey{}, fmt.Errorf("key %s of %s: %w", keys[0].Name, provider, err)
		}
		return state.EncryptionKey{Provider: provider, Name: keys[0].Name, Secret: secret}, nil
	}
	switch {
	case p.KMS != nil:
		return state.EncryptionKey{Provider: config.EncryptionKMS, Name: p.KMS.Name, Endpoint: p.KMS.Endpoint}, nil
	case p.AESGCM != nil:
		return named("aesgcm", p.AESGCM.Keys)
	case p.AESCBC != nil:
		return named("aescbc", p.AESCBC.Keys)
	case p.Secretbox != nil:
		return named("secretbox", p.Secretbox.Keys)
	}
	return state.EncryptionKey{}, nil
}

// AwaitEncryptionInUse returns a step that waits until a machine's API server has loaded its encryption configuration.
func AwaitEncryptionInUse(ip netip.Addr) *step.AwaitAnswer {
	return awaitServerCheck(ip, "encryption-config", "the API server uses the encryption keys that it was given")
}

// AwaitRewritten returns a step that waits until all stored values are encrypted as the API server's configuration
// says.
func AwaitRewritten(ip netip.Addr) *step.AwaitAnswer {
	return awaitServerCheck(ip, "encryption-rewritten", "everything that is stored is written with the new key")
}

func awaitServerCheck(ip netip.Addr, check, what string) *step.AwaitAnswer {
	return &step.AwaitAnswer{Meaning: what, URL: serverCheckURL(ip, check), Client: ServerClient}
}

// serverCheckURL returns the URL of a single readyz check of a machine's API server.
func serverCheckURL(ip netip.Addr, check string) string {
	return "https://" + net.JoinHostPort(ip.String(), "6443") + "/readyz/" + check
}

// configureEncryption adds the configuration file. If the encryption changes, it adds a step that shows in the plan
// what the run does afterwards.
func (b *builder) configureEncryption() string {
	f, err := Encryption(b.State)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(f)
	e := b.State.Keys.Encryption
	if want := b.Cluster.Encryption; !e.IsUpToDate(want) {
		b.add(&step.ShowRotation{To: describeEncryption(want.IsEnabled(), want.Provider, want.Key)})
	}
	return f.Path
}

// kmsSocketDirs returns the directories of KMS plugins' sockets.
func (b *builder) kmsSocketDirs() (list []string) {
	for _, k := range b.State.Keys.Encryption.Keys {
		if at, ok := strings.CutPrefix(k.Endpoint, "unix://"); ok && !slices.Contains(list, path.Dir(at)) {
			list = append(list, path.Dir(at))
		}
	}
	return list
}

func describeEncryption(on bool, provider, key string) string {
	if !on {
		return "what is stored is written without encryption"
	}
	return "what is stored is written with key " + key + " of " + provider
}
