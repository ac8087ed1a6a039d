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
		if p := provider(k); k.ID() == e.Write {
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
	rest := e.Leaving
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

func provider(k state.EncryptionKey) (p apiserverv1.ProviderConfiguration) {
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
			k, err := keyOf(p)
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
			e.Leaving = r.Resources
		}
	}
	return e, nil
}

// keyOf returns the single key of a provider.
func keyOf(p apiserverv1.ProviderConfiguration) (state.EncryptionKey, error) {
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

// EncryptionInUse returns a step that waits until a machine's API server has loaded its encryption configuration.
func EncryptionInUse(ip netip.Addr) *step.Answer {
	return encryptionAnswer(ip, "encryption-config", "the API server uses the encryption keys that it was given")
}

// Rewritten returns a step that waits until all stored values are encrypted as the API server's configuration says.
func Rewritten(ip netip.Addr) *step.Answer {
	return encryptionAnswer(ip, "encryption-rewritten", "everything that is stored is written with the new key")
}

func encryptionAnswer(ip netip.Addr, check, what string) *step.Answer {
	return &step.Answer{What: what, URL: serverCheck(ip, check), Client: ServerClient}
}

// serverCheck returns the URL of a single readyz check of a machine's API server.
func serverCheck(ip netip.Addr, check string) string {
	return "https://" + net.JoinHostPort(ip.String(), "6443") + "/readyz/" + check
}

// encryption adds the configuration file. If the encryption changes, it adds a step that shows in the plan what the run
// does afterwards.
func (b *builder) encryption() string {
	f, err := Encryption(b.State)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.add(f)
	e := b.State.Keys.Encryption
	if want := b.Cluster.Encryption; !e.Settled(want) {
		b.add(&step.Rotation{To: describe(want.On(), want.Provider, want.Key)})
	}
	return f.Path
}

// sockets returns the directories of KMS plugins' sockets.
func (b *builder) sockets() (list []string) {
	for _, k := range b.State.Keys.Encryption.Keys {
		if at, ok := strings.CutPrefix(k.Endpoint, "unix://"); ok && !slices.Contains(list, path.Dir(at)) {
			list = append(list, path.Dir(at))
		}
	}
	return list
}

func describe(on bool, provider, key string) string {
	if !on {
		return "what is stored is written without encryption"
	}
	return "what is stored is written with key " + key + " of " + provider
}
