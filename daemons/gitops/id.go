package gitops

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ObjectID identifies an object in the cluster.
type ObjectID struct{ APIVersion, Kind, Namespace, Name string }

// identity is an ID without the version, since an object is the same in all versions of its kind.
type identity struct{ group, kind, namespace, name string }

func (i ObjectID) identity() identity {
	gk := i.GroupKind()
	return identity{gk.Group, gk.Kind, i.Namespace, i.Name}
}

// GroupKind returns the kind without its version.
func (i ObjectID) GroupKind() schema.GroupKind {
	return schema.FromAPIVersionAndKind(i.APIVersion, i.Kind).GroupKind()
}

// String returns the form in which inventories contain the ID, such as "apps/v1 Deployment shop/web".
func (i ObjectID) String() string { return i.APIVersion + " " + i.Kind + " " + i.FullName() }

// FullName returns the name with its namespace.
func (i ObjectID) FullName() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "/" + i.Name
}

// ParseID parses the form that String returns. The name may contain spaces, as the API allows for roles.
func ParseID(text string) (ObjectID, error) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return ObjectID{}, fmt.Errorf("%q is not an object, such as \"apps/v1 Deployment shop/web\"", text)
	}
	id := ObjectID{APIVersion: parts[0], Kind: parts[1], Name: parts[2]}
	if namespace, name, ok := strings.Cut(parts[2], "/"); ok {
		id.Namespace, id.Name = namespace, name
	}
	if id.Name == "" {
		return ObjectID{}, fmt.Errorf("%q names no object", text)
	}
	return id, nil
}

// inventory is a list of objects without duplicates.
type inventory []ObjectID

// parseInventory parses the inventory of a status. An entry that cannot be parsed is an error: without it, its object
// would never be deleted.
func parseInventory(list []string) (inventory, error) {
	var ids inventory
	for _, text := range list {
		id, err := ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("read the inventory: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// strings returns the entries for a status.
func (v inventory) strings() (list []string) {
	for _, id := range v {
		list = append(list, id.String())
	}
	return list
}

// set returns the identities of the entries.
func (v inventory) set() map[identity]bool {
	in := make(map[identity]bool, len(v))
	for _, id := range v {
		in[id.identity()] = true
	}
	return in
}

// without returns the entries that are not in other.
func (v inventory) without(other inventory) (rest inventory) {
	in := other.set()
	for _, id := range v {
		if !in[id.identity()] {
			rest = append(rest, id)
		}
	}
	return rest
}

// union returns the entries of v and those of other that v does not contain. An entry of v has precedence, because it
// has the current version of the kind.
func (v inventory) union(other inventory) inventory {
	return append(append(inventory{}, v...), other.without(v)...)
}

// size returns the number of bytes of the entries in a status.
func (v inventory) size() (n int) {
	for _, id := range v {
		n += len(id.String()) + len(`"",`)
	}
	return n
}

// idsOf returns the IDs of objects.
func idsOf(objects []Object) inventory {
	ids := make(inventory, len(objects))
	for i, o := range objects {
		ids[i] = o.ID()
	}
	return ids
}
