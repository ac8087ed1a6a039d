package state

import (
	"crypto/rand"
	"maps"
	"slices"

	"clusterctl/hcl/config"
)

// Encryption describes how resources are encrypted in the store. All API servers must be able to read with a key before
// one of them writes with it. So a change takes three moves: Add, Switch and Drop. Each is recorded and has reached all
// servers before the next.
type Encryption struct {
	Keys []EncryptionKey `json:"keys,omitempty"` // the keys that servers have
	// Write is the ID of the key that encrypts new values. If it is empty, new values are not encrypted.
	Write            string   `json:"write,omitempty"`
	Resources        []string `json:"resources,omitempty"`
	LeavingResources []string `json:"leaving,omitempty"` // resources that were encrypted with it and shall no longer be
	// Former keys are no longer on any machine. They are needed to read old copies of the store.
	Former []EncryptionKey `json:"former,omitempty"`
}

// EncryptionKey is a key that encrypts values.
type EncryptionKey struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
	Secret   []byte `json:"secret,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // of the KMS plugin that holds the key
}

// ID returns the ID by which stored values name their key.
func (k EncryptionKey) ID() string { return keyID(k.Provider, k.Name) }

func keyID(provider, name string) string {
	if provider == config.EncryptionKMS {
		return provider + ":v2:" + name
	}
	return provider + ":v1:" + name
}

// wantedKeyID returns the ID of the key with which a configuration wants values encrypted.
func wantedKeyID(want config.Encryption) string {
	if !want.IsEnabled() {
		return ""
	}
	return keyID(want.Provider, want.Key)
}

// IsUpToDate reports whether stored values are encrypted as the configuration wants.
func (e *Encryption) IsUpToDate(want config.Encryption) bool {
	keys := 0
	if want.IsEnabled() {
		keys = 1
	}
	return e.Write == wantedKeyID(want) && len(e.Keys) == keys && len(e.LeavingResources) == 0 &&
		(!want.IsEnabled() || slices.Equal(e.Resources, want.Resources))
}

// Add makes sure that the wanted key exists, for reading only. In a new cluster, values are encrypted with it at once.
func (e *Encryption) Add(want config.Encryption, fresh bool) error {
	if i := e.find(e.Keys, wantedKeyID(want)); want.IsEnabled() && i >= 0 && e.Keys[i].Endpoint != want.Endpoint {
		e.Keys = slices.Clone(e.Keys)
		e.Keys[i].Endpoint = want.Endpoint
	} else if want.IsEnabled() && i < 0 {
		key := EncryptionKey{Provider: want.Provider, Name: want.Key, Endpoint: want.Endpoint}
		if want.Provider != config.EncryptionKMS {
			key.Secret = make([]byte, 32)
		}
		if i := e.find(e.Former, key.ID()); i >= 0 {
			key.Secret = e.Former[i].Secret // a name always stands for the same key
			e.Former = slices.Delete(slices.Clone(e.Former), i, i+1)
		} else if _, err := rand.Read(key.Secret); err != nil {
			return err
		}
		e.Keys = append(slices.Clone(e.Keys), key)
	}
	if fresh {
		e.Switch(want)
		e.Drop()
	}
	return nil
}

// Switch encrypts new values as wanted. All servers can read them already.
func (e *Encryption) Switch(want config.Encryption) {
	for _, r := range slices.Concat(e.Resources, e.LeavingResources) {
		if !want.IsEnabled() || !slices.Contains(want.Resources, r) {
			e.LeavingResources = append(slices.Clone(e.LeavingResources), r)
		}
	}
	slices.Sort(e.LeavingResources)
	e.LeavingResources = slices.Compact(e.LeavingResources)
	e.Write, e.Resources = wantedKeyID(want), nil
	if want.IsEnabled() {
		e.Resources = slices.Clone(want.Resources)
		e.LeavingResources = slices.DeleteFunc(e.LeavingResources,
			func(r string) bool { return slices.Contains(want.Resources, r) })
	}
}

// Drop removes all other keys from the servers, because no stored value uses them any more.
func (e *Encryption) Drop() {
	var keys []EncryptionKey
	for _, k := range e.Keys {
		if k.ID() == e.Write {
			keys = append(keys, k)
		} else {
			e.Former = append(slices.Clone(e.Former), k)
		}
	}
	e.Keys, e.LeavingResources = keys, nil
}

// AddFormerKeys makes servers able to read values that former keys have encrypted, as in a restored copy of the store.
// written has the resources that each key has encrypted. The next rotation encrypts those values again.
// AddFormerKeys returns the IDs of the keys that the state does not have.
func (e *Encryption) AddFormerKeys(written map[string][]string) (missing []string) {
	for _, id := range slices.Sorted(maps.Keys(written)) {
		if i := e.find(e.Former, id); i >= 0 && e.find(e.Keys, id) < 0 {
			e.Keys = append(slices.Clone(e.Keys), e.Former[i])
			e.Former = slices.Delete(slices.Clone(e.Former), i, i+1)
		}
		if e.find(e.Keys, id) < 0 {
			missing = append(missing, id)
		}
		for _, r := range written[id] {
			// The name of a resource in the store does not always determine its group. Then values of all resources are
			// read.
			if all := "*.*"; !slices.Contains(e.Resources, r) && !slices.Contains(e.Resources, all) &&
				!slices.Contains(e.LeavingResources, all) {
				e.LeavingResources = append(slices.Clone(e.LeavingResources), all)
			}
		}
	}
	return missing
}

func (e *Encryption) find(list []EncryptionKey, id string) int {
	return slices.IndexFunc(list, func(k EncryptionKey) bool { return k.ID() == id })
}
