package state

import (
	"crypto/rand"
	"maps"
	"slices"

	"clusterctl/hcl/config"
)

// Encryption is how resources are encrypted in the store. API servers must all be able to
// read with a key before one of them writes with it: so a change goes in three moves, Add,
// Switch and Drop, each of which is written down and has reached all servers before the next.
type Encryption struct {
	Keys []EncryptionKey `json:"keys,omitempty"` // that servers have
	// ID of the one that is written with; empty: values are written as they are
	Write     string   `json:"write,omitempty"`
	Resources []string `json:"resources,omitempty"`
	Leaving   []string `json:"leaving,omitempty"` // resources that were written with it, and are not to be any more
	// Former keys are on no machine any more. Copies of the store from their time need them.
	Former []EncryptionKey `json:"former,omitempty"`
}

// EncryptionKey is one key.
type EncryptionKey struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
	Secret   []byte `json:"secret,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // of a plugin that has the keys itself
}

// ID names a key as the values that it writes do.
func (k EncryptionKey) ID() string { return keyID(k.Provider, k.Name) }

func keyID(provider, name string) string {
	if provider == config.EncryptionKMS {
		return provider + ":v2:" + name
	}
	return provider + ":v1:" + name
}

// writes is the ID of the key that a configuration wants written with.
func writes(want config.Encryption) string {
	if !want.On() {
		return ""
	}
	return keyID(want.Provider, want.Key)
}

// Settled says that what is stored is as the configuration wants it.
func (e *Encryption) Settled(want config.Encryption) bool {
	keys := 0
	if want.On() {
		keys = 1
	}
	return e.Write == writes(want) && len(e.Keys) == keys && len(e.Leaving) == 0 &&
		(!want.On() || slices.Equal(e.Resources, want.Resources))
}

// Add sees to it that there is the key that is wanted, to read with. In a cluster that
// is not there yet it is written with at once.
func (e *Encryption) Add(want config.Encryption, fresh bool) error {
	if i := e.find(e.Keys, writes(want)); want.On() && i >= 0 && e.Keys[i].Endpoint != want.Endpoint {
		e.Keys = slices.Clone(e.Keys)
		e.Keys[i].Endpoint = want.Endpoint
	} else if want.On() && i < 0 {
		key := EncryptionKey{Provider: want.Provider, Name: want.Key, Endpoint: want.Endpoint}
		if want.Provider != config.EncryptionKMS {
			key.Secret = make([]byte, 32)
		}
		if i := e.find(e.Former, key.ID()); i >= 0 {
			key.Secret = e.Former[i].Secret // a name is one key for ever
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

// Switch writes as is wanted, which all servers can read by now.
func (e *Encryption) Switch(want config.Encryption) {
	for _, r := range slices.Concat(e.Resources, e.Leaving) {
		if !want.On() || !slices.Contains(want.Resources, r) {
			e.Leaving = append(slices.Clone(e.Leaving), r)
		}
	}
	slices.Sort(e.Leaving)
	e.Leaving = slices.Compact(e.Leaving)
	e.Write, e.Resources = writes(want), nil
	if want.On() {
		e.Resources = slices.Clone(want.Resources)
		e.Leaving = slices.DeleteFunc(e.Leaving, func(r string) bool { return slices.Contains(want.Resources, r) })
	}
}

// Drop takes the other keys from the servers: nothing is stored any more that they wrote.
func (e *Encryption) Drop() {
	var keys []EncryptionKey
	for _, k := range e.Keys {
		if k.ID() == e.Write {
			keys = append(keys, k)
		} else {
			e.Former = append(slices.Clone(e.Former), k)
		}
	}
	e.Keys, e.Leaving = keys, nil
}

// Need has servers read values that keys of former times have written, for which resources each: those of a copy of the
// store that is brought back. As nothing is to be written so any more, the next rotation ends with them. It names the
// keys that there are not.
func (e *Encryption) Need(written map[string][]string) (missing []string) {
	for _, id := range slices.Sorted(maps.Keys(written)) {
		if i := e.find(e.Former, id); i >= 0 && e.find(e.Keys, id) < 0 {
			e.Keys = append(slices.Clone(e.Keys), e.Former[i])
			e.Former = slices.Delete(slices.Clone(e.Former), i, i+1)
		}
		if e.find(e.Keys, id) < 0 {
			missing = append(missing, id)
		}
		for _, r := range written[id] {
			// How resources are called in the store does not always say which group they are of: then it is read for
			// all of them.
			if all := "*.*"; !slices.Contains(e.Resources, r) && !slices.Contains(e.Resources, all) &&
				!slices.Contains(e.Leaving, all) {
				e.Leaving = append(slices.Clone(e.Leaving), all)
			}
		}
	}
	return missing
}

func (e *Encryption) find(list []EncryptionKey, id string) int {
	return slices.IndexFunc(list, func(k EncryptionKey) bool { return k.ID() == id })
}
