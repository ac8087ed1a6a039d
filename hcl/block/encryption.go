package block

import (
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/config"
)

type encryptionBlock struct {
	Provider  string   `hcl:"provider,optional" doc:"How values are encrypted: secretbox, aesgcm or aescbc; kms keeps the key in a plugin; identity stores values unencrypted." default:"\"secretbox\""`
	Key       string   `hcl:"key,optional" doc:"Name of the key. A new name is a new key: apply distributes it to all API servers, writes all stored values again with it, and removes the former key, without a restart. clusterctl generates the key and stores it in the state, encrypted. With kms it is the name of the plugin, which has its own keys." default:"\"1\""`
	Endpoint  string   `hcl:"endpoint,optional" doc:"With kms: the socket of a KMS plugin (version 2 of its API) on each machine of the control plane, as unix:///run/kms/plugin.sock. The plugin must already run there."`
	Resources []string `hcl:"resources,optional" doc:"Resources that are encrypted: a plural with its group, as secrets or widgets.example.com; *.apps is a group, *. the core group and *.* everything." default:"[\"secrets\"]"`
}

func decodeEncryption(b *hcl.Block, raw *encryptionBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	if raw == nil {
		raw = &encryptionBlock{}
	}
	c.Encryption = config.Encryption{
		Provider:  orDefault(raw.Provider, "secretbox"),
		Key:       orDefault(raw.Key, "1"),
		Endpoint:  raw.Endpoint,
		Resources: slices.Clone(raw.Resources),
	}
	if p := c.Encryption.Provider; !slices.Contains(
		[]string{"secretbox", "aesgcm", "aescbc", config.EncryptionKMS, config.EncryptionIdentity},
		p,
	) {
		diags = append(diags, newError(nestedRange(b, "encryption", "provider"), "Unknown way to encrypt",
			"%q is not known: write secretbox, aesgcm, aescbc, kms, or identity for none.", p))
	}
	switch e := c.Encryption; {
	case e.Provider == config.EncryptionKMS && !isSocketPath(e.Endpoint):
		diags = append(diags, newError(nestedRange(b, "encryption", "endpoint"), "No socket of a KMS plugin",
			"%q: write where the plugin's socket is on the machines, as unix:///run/kms/plugin.sock.", e.Endpoint))
	case e.Provider != config.EncryptionKMS && e.Endpoint != "":
		diags = append(diags, newError(nestedRange(b, "encryption", "endpoint"), "An endpoint without a plugin",
			"An endpoint is for provider = \"kms\"; %s has its key from clusterctl.", e.Provider))
	}
	if k := c.Encryption.Key; len(k) > 63 || strings.ContainsFunc(k, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}) {
		diags = append(diags, newError(nestedRange(b, "encryption", "key"), "Invalid name of a key",
			"%q: write at most 63 letters, digits, hyphens, underscores and dots. The key itself is made by "+
				"clusterctl.", k))
	}
	for _, r := range raw.Resources {
		if r != strings.ToLower(r) || r == "" || r == "*" || strings.ContainsAny(r, "/ ") ||
			strings.Contains(r, "*") && !strings.HasPrefix(r, "*.") {
			diags = append(diags, newError(nestedRange(b, "encryption", "resources"), "Invalid resource",
				"%q is not a resource: write its plural and group, as secrets or widgets.example.com, or *.apps for a "+
					"group.", r))
		}
	}
	if len(c.Encryption.Resources) == 0 {
		c.Encryption.Resources = []string{"secrets"}
	}
	slices.Sort(c.Encryption.Resources)
	c.Encryption.Resources = slices.Compact(c.Encryption.Resources)
	return diags
}

// isSocketPath reports whether an endpoint is a Unix socket in a directory of its own, which is mounted into static
// pods.
func isSocketPath(endpoint string) bool {
	at, ok := strings.CutPrefix(endpoint, "unix://")
	return ok && path.IsAbs(at) && path.Clean(at) == at && path.Dir(at) != "/"
}
