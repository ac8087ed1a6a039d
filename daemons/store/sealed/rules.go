package sealed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/store/sealed/kms"
)

// parsedRules is a parsed EncryptionConfiguration. It is immutable.
type parsedRules struct {
	digest [sha256.Size]byte // of the file
	list   []writeRule       // the first rule that names a resource applies
	keys   []*providerKey    // all keys, for decryption
	order  []string          // the providers' keys in the order of the file
	pool   *pluginPool       // the plugins in use

	plugins []*kms.Plugin
	added   []*kms.Plugin // plugins that the former file did not have
}

// writeRule defines how resources are written.
type writeRule struct {
	resources []string     // plural.group, *.group or *.*
	write     *providerKey // nil writes values unencrypted
}

func readRules(path string, from *pluginPool) (*parsedRules, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the encryption configuration: %w", err)
	}
	r, err := parseRules(text, from)
	if err != nil {
		return nil, fmt.Errorf("read the encryption configuration %s: %w", path, err)
	}
	return r, nil
}

func parseRules(text []byte, from *pluginPool) (_ *parsedRules, err error) {
	var c apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	if c.Kind != "EncryptionConfiguration" || c.APIVersion != apiserverv1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("it is a %s of %s, and not an EncryptionConfiguration of %s", c.Kind, c.APIVersion,
			apiserverv1.SchemeGroupVersion)
	}
	if len(c.Resources) == 0 {
		return nil, errors.New("resources are missing")
	}
	r := &parsedRules{digest: sha256.Sum256(text), pool: from}
	defer func() {
		if err != nil {
			from.closeUnused(nil, r.added)
		}
	}()
	for i, res := range c.Resources {
		if len(res.Resources) == 0 || len(res.Providers) == 0 {
			return nil, fmt.Errorf("resources[%d] must name resources and providers", i)
		}
		var own writeRule
		for _, name := range res.Resources {
			if name != strings.ToLower(name) || name == "" || name == "*" ||
				strings.Count(name, "*") > 0 && !strings.HasPrefix(name, "*.") {
				return nil, fmt.Errorf("resources[%d]: %q is not a resource: write the plural and its group, as "+
					"secrets, deployments.apps, *. for the core group, *.apps, or *.*", i, name)
			}
			own.resources = append(own.resources, strings.TrimSuffix(name, "."))
		}
		for j, p := range res.Providers {
			keys, err := r.provider(p)
			if err != nil {
				return nil, fmt.Errorf("resources[%d].providers[%d]: %w", i, j, err)
			}
			for _, k := range keys {
				r.order = append(r.order, strings.Trim(strings.TrimPrefix(k.prefix, encryptedPrefix), ":"))
			}
			if p.Identity != nil {
				r.order = append(r.order, "identity")
			}
			if j == 0 && len(keys) > 0 {
				own.write = keys[0]
			}
		}
		r.list = append(r.list, own)
	}
	return r, nil
}

// provider adds the keys of a provider to the keys for decryption, and returns them, the writing key first. The
// identity provider has none.
func (r *parsedRules) provider(p apiserverv1.ProviderConfiguration) (keys []*providerKey, err error) {
	var name string
	var list []apiserverv1.Key
	several := 0
	take := func(n string, k []apiserverv1.Key) { name, list, several = n, k, several+1 }
	if p.AESGCM != nil {
		take("aesgcm", p.AESGCM.Keys)
	}
	if p.AESCBC != nil {
		take("aescbc", p.AESCBC.Keys)
	}
	if p.Secretbox != nil {
		take("secretbox", p.Secretbox.Keys)
	}
	if p.Identity != nil {
		take("identity", nil)
	}
	if p.KMS != nil {
		take("kms", nil)
	}
	switch {
	case several != 1:
		return nil, errors.New("name exactly one of kms, secretbox, aesgcm, aescbc and identity")
	case name == "identity":
		return nil, nil
	case name == "kms":
		made, err := r.plugin(p.KMS)
		if err != nil {
			return nil, fmt.Errorf("kms: %w", err)
		}
		r.keys = append(r.keys, made)
		return []*providerKey{made}, nil
	case len(list) == 0:
		return nil, fmt.Errorf("%s needs keys", name)
	}
	for _, k := range list {
		if k.Name == "" || strings.Contains(k.Name, ":") {
			return nil, fmt.Errorf("%s: %q is not the name of a key: it must not be empty or contain a "+
				"colon", name, k.Name)
		}
		secret, err := base64.StdEncoding.DecodeString(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("%s: the secret of key %s is not base64", name, k.Name)
		}
		made, err := newProviderKey(name, k.Name, secret)
		if err != nil {
			return nil, fmt.Errorf("%s: key %s: %w", name, k.Name, err)
		}
		keys = append(keys, made)
	}
	r.keys = append(r.keys, keys...)
	return keys, nil
}

// writer returns the key that a resource is written with; nil writes it unencrypted.
func (r *parsedRules) writer(gr schema.GroupResource) *providerKey {
	if gr.Empty() {
		return nil
	}
	for i := range r.list {
		if r.list[i].matches(gr) {
			return r.list[i].write
		}
	}
	return nil
}

func (r *writeRule) matches(gr schema.GroupResource) bool {
	for _, name := range r.resources {
		plural, group, _ := strings.Cut(name, ".")
		if (plural == gr.Resource || plural == "*") && (group == gr.Group || name == "*.*") {
			return true
		}
	}
	return false
}

// open decrypts a value with the key that wrote it. Keys of several rules may have the same name, so it tries each of
// them.
func (r *parsedRules) open(ctx context.Context, path string, value []byte) ([]byte, error) {
	err := error(nil)
	for _, k := range r.keys {
		if bytes.HasPrefix(value, []byte(k.prefix)) {
			plain, wrong := k.open(ctx, path, value)
			if wrong == nil {
				return plain, nil
			}
			if err == nil || !errors.Is(err, kms.ErrPlugin) {
				err = wrong
			}
		}
	}
	if err == nil {
		name, _, _ := bytes.Cut(value[len(encryptedPrefix):min(len(value), 200)], []byte("\x00"))
		fields := bytes.SplitN(name, []byte(":"), 4)
		if len(fields) == 4 {
			return nil, fmt.Errorf("there is no key %q of %s", fields[2], fields[0])
		}
		return nil, errTampered
	}
	return nil, err
}

// covers reports whether a rule names a resource.
func (r *parsedRules) covers(gr schema.GroupResource) bool {
	for i := range r.list {
		if r.list[i].matches(gr) {
			return true
		}
	}
	return false
}
