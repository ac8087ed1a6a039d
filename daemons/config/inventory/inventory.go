// Package inventory defines the list of a cluster's machines. clusterctl apply writes it to a ConfigMap in kube-system,
// and the cloud node controller reads it. It contains no secrets.
package inventory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Name is the name of the ConfigMap in kube-system. Each key of its data is the name of a machine, and each value a
// Machine as JSON.
const Name = "machine-inventory"

// Scheme is the prefix of machines' provider IDs.
const Scheme = "clusterctl://"

// Machine describes a machine.
type Machine struct {
	// ProviderID identifies the installation. It is empty until the machine has been reached.
	ProviderID string   `json:"providerID,omitempty"`
	Roles      []string `json:"roles"`
	Addresses  []string `json:"addresses"`                   // for other machines of the cluster
	External   []string `json:"externalAddresses,omitempty"` // for clients outside of the cluster
	Region     string   `json:"region,omitempty"`
	Zone       string   `json:"zone,omitempty"`
}

// Inventory maps the names of machines to their descriptions.
type Inventory map[string]Machine

// ProviderID returns the provider ID of an installation. identity may have any form. The result is empty if identity is
// empty.
func ProviderID(cluster, identity string) string {
	if identity == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(identity))
	return Scheme + cluster + "/" + hex.EncodeToString(sum[:10])
}

// Encode returns the data of the ConfigMap.
func (i Inventory) Encode() (map[string]string, error) {
	data := make(map[string]string, len(i))
	for name, m := range i {
		text, err := json.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("write machine %s: %w", name, err)
		}
		data[name] = string(text)
	}
	return data, nil
}

// Decode parses the data of the ConfigMap. It returns no machines if anything is invalid or missing: Nodes of machines
// that are not in the list are deleted, and every cluster has at least one machine.
func Decode(data map[string]string) (Inventory, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	list := make(Inventory, len(data))
	owner := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		d := json.NewDecoder(bytes.NewReader([]byte(data[name])))
		d.DisallowUnknownFields()
		var m Machine
		if err := d.Decode(&m); err != nil {
			return nil, fmt.Errorf("machine %s: %w", name, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("machine %s: something follows the machine", name)
		}
		if text := m.problem(); text != "" {
			return nil, fmt.Errorf("machine %s: %s", name, text)
		}
		if other := owner[m.ProviderID]; other != "" && m.ProviderID != "" {
			return nil, fmt.Errorf("machine %s: its provider ID is that of machine %s", name, other)
		}
		owner[m.ProviderID] = name
		list[name] = m
	}
	return list, nil
}

// problem returns why a machine is invalid, or "".
func (m Machine) problem() string {
	if m.ProviderID != "" && !strings.HasPrefix(m.ProviderID, Scheme) {
		return fmt.Sprintf("provider ID %q does not begin with %s", m.ProviderID, Scheme)
	}
	if len(m.Addresses) == 0 {
		return "it has no address"
	}
	for _, text := range slices.Concat(m.Addresses, m.External) {
		if _, err := netip.ParseAddr(text); err != nil {
			return fmt.Sprintf("%q is not an IP address", text)
		}
	}
	for _, label := range []string{m.Region, m.Zone} {
		if errs := validation.IsValidLabelValue(label); len(errs) > 0 {
			return fmt.Sprintf("%q: %s", label, errs[0])
		}
	}
	return ""
}
