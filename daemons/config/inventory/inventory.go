// Package inventory is the list of a cluster's machines as clusterctl apply writes it into the cluster, in a ConfigMap
// of kube-system, and as the cloud node controller reads it. Nothing of it is secret. What follows from it for Nodes is
// the controller's.
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

// Name is the ConfigMap in kube-system: each key of its data is the name of a machine, each value a Machine as JSON.
const Name = "machine-inventory"

// Scheme is how provider IDs of machines begin.
const Scheme = "clusterctl://"

// Machine is what is known of a machine.
type Machine struct {
	// ProviderID names the installation. It is empty as long as the machine has not been reached.
	ProviderID string   `json:"providerID,omitempty"`
	Roles      []string `json:"roles"`
	Addresses  []string `json:"addresses"`                   // at which the other machines reach it
	External   []string `json:"externalAddresses,omitempty"` // at which others do
	Region     string   `json:"region,omitempty"`
	Zone       string   `json:"zone,omitempty"`
}

// Inventory is the machines by name.
type Inventory map[string]Machine

// ProviderID returns the provider ID of an installation, whose identity is of any form. It is empty for one that is not
// known.
func ProviderID(cluster, identity string) string {
	if identity == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(identity))
	return Scheme + cluster + "/" + hex.EncodeToString(sum[:10])
}

// Encode returns what the ConfigMap holds.
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

// Decode reads what the ConfigMap holds. Nothing is returned when something of it is wrong, or when it is empty: Nodes
// of machines that are missing from it are deleted, and a cluster has a machine at least.
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

// problem says what is wrong with a machine, "" when nothing is.
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
