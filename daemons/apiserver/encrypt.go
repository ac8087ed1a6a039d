package apiserver

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store"
	"clusterctl/daemons/store/sealed"
)

// withEncryption wraps the store with the encryption that cfg configures. /readyz/encryption-config fails if the
// configuration file on disk cannot be loaded. /readyz/encryption-rewritten reports whether every stored object has
// been written with the first provider. The returned check is for /readyz: it fails while a KMS plugin in use does not
// answer. It is nil without encryption.
func withEncryption(cfg config.APIServer, s store.Store, env run.Env) (
	store.Store, run.Check, []func(context.Context, *Server) error, error,
) {
	if cfg.EncryptionProviderConfig == "" {
		env.Health.AddInformational("encryption-rewritten",
			func() error { return nil }) // nothing is encrypted, so nothing needs rewriting
		return s, nil, nil, nil
	}
	names := newStorageKeys(cfg.EtcdPrefix)
	sealed, err := sealed.Open(sealed.Config{
		Store: s, File: cfg.EncryptionProviderConfig, Log: env.Log, Prefixes: names.prefixOf,
		Resource: names.resourceOf,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	env.Health.AddInformational("encryption-config", sealed.Reload)
	env.Health.AddInformational("encryption-rewritten", sealed.CheckRewritten)
	task := func(ctx context.Context, server *Server) error {
		return sealed.Run(ctx, func() []schema.GroupResource { return rewrittenResources(server.cache) })
	}
	return sealed, sealed.PluginHealth, []func(context.Context, *Server) error{task}, nil
}

// rewrittenResources returns the resources whose values are rewritten after a change of keys. It leaves out events:
// they expire before that matters, and rewriting would lose their time to live.
func rewrittenResources(c *cache.Cache) (list []schema.GroupResource) {
	for _, r := range c.Resources() {
		if !r.Kind.Expires {
			list = append(list, r.Kind.GR())
		}
	}
	return list
}

// storageKeys maps store keys to resources, and resources to key prefixes.
type storageKeys struct {
	prefix     string // ends in a slash
	byKey      map[string]schema.GroupResource
	byResource map[schema.GroupResource]string
}

func newStorageKeys(prefix string) *storageKeys {
	n := &storageKeys{
		prefix:     strings.TrimSuffix(prefix, "/") + "/",
		byKey:      map[string]schema.GroupResource{},
		byResource: map[schema.GroupResource]string{},
	}
	for _, k := range kinds.All() {
		if !k.Virtual {
			n.byKey[cache.StorageKey(k)], n.byResource[k.GR()] = k.GR(), cache.StorageKey(k)
		}
	}
	return n
}

// resourceOf returns the resource that a key belongs to. Keys of custom resources begin with the group, which has a
// dot.
func (n *storageKeys) resourceOf(key string) schema.GroupResource {
	rest, ok := strings.CutPrefix(key, n.prefix)
	if !ok {
		return schema.GroupResource{}
	}
	first, rest, _ := strings.Cut(rest, "/")
	if gr, ok := n.byKey[first]; ok {
		return gr
	}
	second, _, _ := strings.Cut(rest, "/")
	if gr, ok := n.byKey[first+"/"+second]; ok {
		return gr
	}
	if strings.Contains(first, ".") {
		return schema.GroupResource{Group: first, Resource: second}
	}
	return schema.GroupResource{}
}

func (n *storageKeys) prefixOf(gr schema.GroupResource) string {
	if key, ok := n.byResource[gr]; ok {
		return n.prefix + key + "/"
	}
	if strings.Contains(gr.Group, ".") {
		return n.prefix + gr.Group + "/" + gr.Resource + "/"
	}
	return ""
}
