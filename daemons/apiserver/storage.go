package apiserver

import (
	"log/slog"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/store"
)

// DefaultPrefix is the usual prefix of all keys in the store. It is upstream's.
const DefaultPrefix = "/registry"

// Storage is the store of an API server, with the cache of its contents. It is opened before the server, because
// authorizers and admission plugins read the stored objects.
type Storage struct {
	raw     store.Store
	counted *countedStore // raw, with its calls counted
	cache   *cache.Cache
	kinds   []*kinds.Kind
	prefix  string
}

// OpenStorage returns a store's objects of the built-in kinds. Their keys begin with prefix; empty means DefaultPrefix.
func OpenStorage(s store.Store, prefix string, builtIn []*kinds.Kind, log *slog.Logger) *Storage {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	counted := newCountedStore(s)
	c := cache.New(counted, prefix, builtIn, log)
	counted.resource = resourceByKey(c)
	return &Storage{raw: s, counted: counted, cache: c, kinds: builtIn, prefix: prefix}
}

// Objects returns a view of the stored objects, for authorizers and admission plugins. It is empty until a server has
// filled the cache.
func (s *Storage) Objects() api.CurrentObjects { return s.cache.Objects() }
